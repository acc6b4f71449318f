"""What is printed, what is kept in a log, and what is held back for the one message at the end."""

import errno
import io

import pytest
from distlab.launch.voice import Voice


@pytest.fixture
def voice(tmp_path):
    return Voice(tmp_path, quiet=False, out=io.StringIO())


def said(voice):
    return voice._out.getvalue()


def test_each_line_has_its_host_and_rank(voice):
    voice.hear("node1", 0, "stdout", "one")
    voice.hear("node2", 3, "stderr", "two")
    assert said(voice) == "node1:0 | one\nnode2:3 | two\n"
    assert voice.lines == [(0, "one"), (3, "two")]


def test_a_failure_is_held_and_logged(voice):
    for text in ("before", "Traceback (most recent call last):", "  File x", "KeyError: 1"):
        voice.hear("node1", 1, "stderr", text)
    voice.hear("node1", 1, "stdout", "still talking")
    voice.close(release=False)
    assert said(voice) == "node1:1 | before\nnode1:1 | still talking\n"
    assert voice.held(1) == "Traceback (most recent call last):\n  File x\nKeyError: 1"
    assert voice.held(0) == ""
    assert "KeyError: 1" in voice.log_path(1).read_text()


def test_what_was_held_is_printed_when_nothing_failed(voice):
    voice.hear("node1", 1, "stderr", "Traceback (most recent call last):")
    voice.hear("node1", 1, "stderr", "KeyError: coped with")
    voice.close(release=True)
    assert "KeyError: coped with" in said(voice)
    assert (1, "KeyError: coped with") in voice.lines


def test_a_bar_redraws_and_the_next_line_starts_afresh(voice):
    voice.hear("node1", 0, "stderr", " 10%\r")
    voice.hear("node1", 0, "stderr", " 20%\r")
    voice.hear("node1", 0, "stdout", "epoch done")
    voice.close(release=True)
    redrawn, last, rest = said(voice).partition("node1:0 | epoch done\n")
    assert redrawn.count("\r") >= 1 and last and rest == ""
    assert "10%" in redrawn and "20%" in redrawn
    assert voice.log_path(0).read_text() == "epoch done\n"


def seen(voice) -> list[str]:
    """What stands on the page: a carriage return goes back, and what follows writes over it."""
    page = []
    for line in said(voice).split("\n"):
        shown = ""
        for part in line.split("\r"):
            shown = part + shown[len(part) :]
        page.append(shown.rstrip())
    return page


def test_no_unfinished_bar_is_left_above_the_line_that_ends_it(voice):
    """The line comes by stdout and may overtake the end of the bar, which comes by stderr."""
    voice.hear("node1", 0, "stderr", "epoch 1: 83%\r")
    voice.hear("node1", 0, "stdout", "epoch 1: loss 0.9")
    voice.hear("node1", 0, "stderr", "   \r")
    voice.hear("node1", 0, "stdout", "done")
    assert seen(voice) == ["node1:0 | epoch 1: loss 0.9", "node1:0 | done", ""]


def test_a_bar_at_the_end_is_closed(voice):
    voice.hear("node1", 0, "stderr", " 90%\r")
    voice.close(release=True)
    assert said(voice).endswith("\n")


def test_quiet(tmp_path):
    out = io.StringIO()
    voice = Voice(tmp_path, quiet=True, out=out)
    voice.hear("node1", 0, "stdout", "one")
    voice.tell("port 1 is taken")
    voice.close(release=True)
    assert out.getvalue() == ""
    assert voice.log_path(0).read_text() == "one\n"


def test_a_log_that_cannot_be_written(voice):
    class Full(io.StringIO):
        def write(self, text: str) -> int:
            raise OSError(errno.ENOSPC, "No space left on device")

        def close(self) -> None:
            raise OSError(errno.ENOSPC, "No space left on device")

    voice._logs[0] = Full()
    with pytest.raises(OSError, match="cannot write the run folder .*: No space left on device. Free some space"):
        voice.hear("node1", 0, "stdout", "one")
    voice.close(release=False)
