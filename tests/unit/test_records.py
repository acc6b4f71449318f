"""Records that short runs report have the fields and types that distlab.records says."""

import contextlib
import io
import sys
from pathlib import Path
from typing import get_type_hints
from unittest.mock import patch

import pytest
import start_ranks
from distlab import data, process, records, report
from distlab.scripts import amp, compare_weights, ddp, env_report, language, single

WORDS = ("--data", "digits", "--limit", "64", "--epochs", "1", "--max-steps", "2", "--batch-size", "16")


def several_scripts(folder: Path, root: Path) -> None:
    """In one process: images, text, an empty resumed run, a loss scale that overflows, and a comparison of weights."""
    words = [*WORDS, "--data-root", str(root)]
    with contextlib.redirect_stdout(io.StringIO()):
        single.main([*words, "--checkpoint", str(folder / "one.pt")])
        single.main([*words, "--max-steps", "9", "--checkpoint", str(folder / "two.pt")])
        single.main([*words, "--resume", str(folder / "two.pt"), "--no-checkpoint"])
        small = "--layers 1 --embedding-dim 8 --heads 1 --context 8 --limit 600 --max-steps 1 --generate 1"
        language.main([*small.split(), "--no-checkpoint"])
        # An infinite gradient halves it.
        amp.main([*words, "--amp", "fp16", "--loss-scale", "1e30", "--no-checkpoint"])
        with patch.object(sys, "argv", ["compare_weights", str(folder / "one.pt"), str(folder / "two.pt")]):
            compare_weights.main()


def on_ranks(root: Path) -> None:
    """In a group: ddp.py, and the table of ranks."""
    with process.group() as me, patch.object(process, "group", lambda: contextlib.nullcontext(me)):
        with contextlib.redirect_stdout(io.StringIO()):
            ddp.main([*WORDS, "--data-root", str(root), "--no-checkpoint"])
            env_report.main([])


@pytest.fixture(scope="module")
def reported(tmp_path_factory) -> list[dict]:
    """The records of all these runs."""
    folder = tmp_path_factory.mktemp("records")
    root = folder / "data"
    data.prepare("digits", root=root)
    start_ranks.run(1, several_scripts, folder, root, folder=folder / "alone")
    start_ranks.run(2, on_ranks, root, folder=folder / "ranks")
    return report.read(folder / "alone") + report.read(folder / "ranks")


def fault(record: dict) -> str | None:
    """What is wrong with a record, or None: the nearest form of its event decides."""
    forms = records.EVENTS.get(record["event"])
    if forms is None:
        return f"{record['event']!r} is no event of distlab.records"
    form = max(forms, key=lambda form: len(set(get_type_hints(form)) & set(record)))
    hints = get_type_hints(form)
    if set(hints) != set(record):
        return f"{form.__name__} and its record differ in {sorted(set(hints) ^ set(record))}"
    # JSON has one kind of number: 1.0 stays a float, and a whole number is a float, too.
    wrong = [key for key, hint in hints.items() if not isinstance(record[key], hint | int if hint is float else hint)]
    return f"{form.__name__}: {wrong[0]} is {record[wrong[0]]!r}, not {hints[wrong[0]]}" if wrong else None


def test_real_records_have_these_fields_and_types(reported):
    assert [found for found in map(fault, reported) if found] == []


def test_every_event_and_every_form_was_seen(reported):
    assert {record["event"] for record in reported} == set(records.EVENTS)
    seen = {frozenset(record) for record in reported}
    assert all(frozenset(get_type_hints(form)) in seen for forms in records.EVENTS.values() for form in forms)
    assert {record["rank"] for record in reported} == {0, 1}


def test_an_optional_field_was_null_once(reported):
    ends = [record for record in reported if record["event"] == "end"]
    assert None in {record["checkpoint"] for record in ends} != {None}


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"loss": "0.5"}, "Epoch: loss is '0.5', not <class 'float'>"),
        ({"steps": 1.5}, "Epoch: steps is 1.5, not <class 'int'>"),
        ({"speed": 1}, "Epoch and its record differ in ['speed']"),
        ({"event": "epok"}, "'epok' is no event of distlab.records"),
    ],
)
def test_a_record_that_disagrees_is_told(reported, change, said):
    record = next(record for record in reported if record["event"] == "epoch")
    assert fault(record | change) == said
