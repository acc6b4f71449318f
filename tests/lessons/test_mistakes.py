"""Every planted mistake of every exercise is named first, in the words that it has to be."""

import dataclasses
import gzip
import re
import shutil
import time
from collections import Counter

import exercise
import needs
import pytest
import recorded
from distlab.checks import check, names
from distlab.checks.checking import requirements_of
from distlab.runs import WORKSPACE

MISTAKES = exercise.mistakes()
RECORDED = [(name, planted) for name, planted in MISTAKES if not planted.live]


@pytest.mark.parametrize(("name", "planted"), MISTAKES, ids=[f"{name}-{planted.name}" for name, planted in MISTAKES])
def test_planted_mistake_is_named_first(name, planted, tmp_path):
    """Live on ranks, or by what ranks reported when the mistake was recorded."""
    if not planted.live:
        return exercise.assert_told(planted, recorded.judged(name, planted, recorded.load(recorded.file_of(name))))
    if name == "horovod_ddp":
        needs.horovod()
    file, began = exercise.edited(name, tmp_path, *planted.edits), time.monotonic()
    result = check(name, file=file, timeout=planted.seconds)
    # Nobody waits for the deadline of the whole run; a cold start takes long on a busy machine.
    assert time.monotonic() - began < planted.seconds + 45
    return exercise.assert_told(planted, result)


@pytest.mark.parametrize("name", names())
def test_recordings_are_those_of_the_mistakes(name):
    """None is missing, none is left of a mistake that there is no more, and each mistake has a name of its own."""
    planted = [mistake.name for own, mistake in MISTAKES if own == name]
    assert [mistake for mistake, count in Counter(planted).items() if count > 1] == []
    wanted = [mistake.name for own, mistake in RECORDED if own == name]
    assert list(recorded.load(recorded.file_of(name))) == wanted, recorded.AGAIN


@pytest.mark.parametrize("name", names())
def test_as_many_mistakes_run_live_as_there_are_todos(name):
    """A recording shows what was; that ranks still report it is shown on ranks."""
    todos = set(re.findall(r"TODO (\d+)", (WORKSPACE / "exercises" / f"{name}.py").read_text()))
    assert len([planted for own, planted in MISTAKES if own == name and planted.live]) >= len(todos) > 3


@pytest.mark.parametrize("name", names())
def test_recordings_tell_of_no_machine(name):
    text = gzip.decompress(recorded.file_of(name).read_bytes()).decode()
    assert '"host":"node1"' in text
    assert re.findall(r"/(?:tmp|home|root|usr|opt|var|work|Users)/[^ ]*", text) == []


# -- the proof that a wrong check would be red -----------------------------------------------------


def some_recorded() -> tuple:
    name, planted = next((name, planted) for name, planted in RECORDED if name == "ddp")
    return name, planted, recorded.load(recorded.file_of(name))


def stamp_of_now(name, planted, package):
    recorded._code.cache_clear()
    return recorded.stamp(name, planted, package)


@pytest.mark.parametrize(
    "wrong", [{"says": "rank 0 is well"}, {"requirement": "leaves"}, {"says": "{line}", "at": "import torch\n"}]
)
def test_what_is_not_said_is_red(wrong):
    name, planted, records = some_recorded()
    result = recorded.judged(name, planted, records)
    exercise.assert_told(planted, result)
    with pytest.raises((AssertionError, ValueError)):
        exercise.assert_told(dataclasses.replace(planted, **wrong), result)


def test_a_requirement_that_no_longer_sees_it_is_red(monkeypatch):
    name, planted, records = some_recorded()
    requirements = requirements_of(name)
    monkeypatch.setitem(requirements._judges, planted.requirement, lambda observed: None)
    with pytest.raises(AssertionError, match=f"nothing was found, though {planted.requirement} is broken"):
        exercise.assert_told(planted, recorded.judged(name, planted, records))


def test_a_recording_that_is_not_there_is_red():
    name, planted, records = some_recorded()
    del records[planted.name]
    with pytest.raises(recorded.NoRecording, match="there is no recording, record again: make record-mistakes"):
        recorded.judged(name, planted, records)


@pytest.mark.parametrize(
    ("file", "old", "new"),
    [
        ("lessons/ddp/check/probe.py", "EPOCHS, LR = 16, 6, 3, 0.1", "EPOCHS, LR = 16, 6, 4, 0.1"),
        ("checks/replica.py", "torch.tanh", "torch.relu"),
        ("checks/probe.py", '"stuck": 3.0', '"stuck": 2.0'),
    ],
)
def test_a_recording_of_other_code_is_red(file, old, new, tmp_path, monkeypatch):
    name, planted, records = some_recorded()
    package = shutil.copytree(recorded.PACKAGE, tmp_path / "distlab", ignore=shutil.ignore_patterns("__pycache__"))
    assert recorded.stamp(name, planted, package) == recorded.stamp(name, planted)
    text = (package / file).read_text()
    assert old in text
    (package / file).write_text(text.replace(old, new))
    changed = stamp_of_now(name, planted, package)
    assert changed != recorded.stamp(name, planted)
    monkeypatch.setattr(recorded, "stamp", lambda *_: changed)
    with pytest.raises(recorded.NoRecording, match="has changed since its recording, record again"):
        recorded.judged(name, planted, records)


def test_words_and_judges_may_change(tmp_path):
    """Without a new recording: comments, and what only compares."""
    name, planted, _ = some_recorded()
    package = shutil.copytree(recorded.PACKAGE, tmp_path / "distlab", ignore=shutil.ignore_patterns("__pycache__"))
    probe, judges = package / "checks" / "probe.py", package / "lessons" / "ddp" / "check" / "requirements.py"
    probe.write_text(probe.read_text().replace('"""Inside a rank', '"""In a rank') + "\n# Some words.\n")
    judges.write_text("REQUIREMENTS = None\n")
    assert stamp_of_now(name, planted, package) == recorded.stamp(name, planted)


@pytest.mark.parametrize("more", [{"edits": [("import os", "import sys")]}, {"seconds": 1.0}])
def test_a_recording_of_another_mistake_is_red(more):
    name, planted, records = some_recorded()
    with pytest.raises(recorded.NoRecording):
        recorded.judged(name, dataclasses.replace(planted, **more), records)
