"""What cells say: lines that are the same everywhere while they hold, and kind words when not."""

import subprocess
import sys

import numpy as np
import pytest
from distlab.lesson import Shown, claim, commands, compare, diff, each, source
from IPython.core.interactiveshell import InteractiveShell


def said(capsys) -> str:
    return capsys.readouterr().out


def test_a_claim_that_holds_says_nothing_that_varies(capsys):
    assert claim("gradients agree", 1e-9 < 1e-6, measured=1e-9)
    assert claim("gradients agree", np.bool_(True), measured=3e-8)
    assert said(capsys) == "✓ gradients agree: True\n" * 2


def test_a_claim_that_fails_says_by_how_much(capsys):
    assert not claim("gradients agree", False, measured=0.25)
    assert not claim("gradients agree", False)
    assert said(capsys) == "✗ gradients agree: False (measured 0.25)\n✗ gradients agree: False\n"


def test_a_claim_never_raises(capsys):
    assert not claim("arrays agree", np.array([True, False]))
    assert not claim("nothing came", None)
    first, second = said(capsys).splitlines()
    assert first.startswith("✗ arrays agree: False (measured The truth value") and second == "✗ nothing came: False"


def test_a_claim_at_the_end_of_a_cell_is_not_shown_twice():
    formatter = InteractiveShell.instance().display_formatter
    assert formatter.format(claim("it holds", True)) == ({}, {})
    assert formatter.format(True) != ({}, {})


def test_each_gives_values_in_rank_order():
    records = [{"rank": 2, "pid": 7}, {"rank": 0, "pid": 9}, {"rank": 1, "pid": 8}]
    assert each(records, "pid") == [9, 8, 7]
    assert each({record["rank"]: record for record in records}, "pid") == [9, 8, 7]
    with pytest.raises(KeyError, match="no 'seconds' in a record of rank 0: it has rank, pid"):
        each(records, "seconds")


@pytest.mark.parametrize(
    ("guess", "measured", "line"),
    [
        (None, 8, "You made no guess this time: it is 8 samples."),
        (8, 8, "You guessed 8, and it is 8 samples. Exactly."),
        (7.5, 8, "You guessed 7.5, and it is 8 samples. Close enough."),
        (4, 8, "You guessed 4; it is 8 samples, more than you thought."),
        (30, 8, "You guessed 30; it is 8 samples, less than you thought."),
        ("many", 8, "You guessed many; it is 8 samples. Now find out why."),
        (True, 8, "You guessed True; it is 8 samples. Now find out why."),
    ],
)
def test_guesses_are_compared_kindly(capsys, guess, measured, line):
    compare(guess, measured, "samples")
    assert said(capsys) == line + "\n"


def test_diff_shows_only_what_changes(tmp_path):
    before, after = tmp_path / "before.py", tmp_path / "after.py"
    before.write_text("one\ntwo\nthree\nfour\nfive\n")
    after.write_text("one\ntwo\n3 < 4\nfour\nfive\n")
    shown = diff(before, after, context=1)
    head = ["--- before.py", "+++ after.py", "@@ -2,3 +2,3 @@"]
    assert shown.text.splitlines() == [*head, " two", "-three", "+3 < 4", " four"]
    assert "+3 &lt; 4" in shown.markup and "before.py → after.py" in shown.markup
    assert repr(shown) == shown.text and shown._repr_html_() == shown.markup


def test_diff_of_equal_scripts_says_so(tmp_path):
    script = tmp_path / "a.py"
    script.write_text("one\n")
    assert diff(script, script).text == "a.py → a.py: no difference"


def test_scripts_of_the_lesson_are_found_by_name():
    assert "DistributedDataParallel" in source("ddp").text
    added = [line for line in diff("single", "ddp").text.splitlines() if line.startswith("+")]
    assert any("process.group()" in line for line in added)
    assert any("DistributedSampler(" in line for line in added)


def test_commands_are_wrapped_but_not_broken():
    class Result:
        seconds = 1.25
        command = {"node1": "torchrun " + " ".join(f"--option-{i} value" for i in range(20)) + " a & b"}

    shown = commands(Result())
    assert isinstance(shown, Shown)
    assert all(len(line) <= 100 for line in shown.text.splitlines())
    assert " ".join(shown.text.split()) == "node1$ " + Result.command["node1"]
    assert "a &amp; b" in shown.markup and "1.2 s here" in shown.markup


def test_importing_it_leaves_torch_alone():
    code = "import sys, distlab.lesson, distlab.ranks.cell; print('torch' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout.strip() == "False"


def test_end_stops_what_begin_started():
    code = """
import psutil
from distlab.launch import default_session
from distlab.lesson import begin, end
begin("A lesson")
agents = list(default_session().pids.values())
assert agents and all(psutil.pid_exists(pid) for pid in agents)
end()
assert not any(psutil.pid_exists(pid) for pid in agents), agents
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.endswith("✓ nothing that this lesson started is still running: True\n")
    assert "A lesson: ready." in done.stdout
