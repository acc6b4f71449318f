"""What is printed, what is kept in a log, and what is held back for the one message at the end."""

import errno
import io

import pytest
from distlab.launch.output import RankOutput


@pytest.fixture
def output(tmp_path):
    return RankOutput(tmp_path, quiet=False, out=io.StringIO())


def said(output):
    return output._out.getvalue()


def test_each_line_has_its_host_and_rank(output):
    output.hear("node1", 0, "stdout", "one")
    output.hear("node2", 3, "stderr", "two")
    assert said(output) == "node1:0 | one\nnode2:3 | two\n"
    assert output.lines == [(0, "one"), (3, "two")]


def test_a_failure_is_held_and_logged(output):
    for text in ("before", "Traceback (most recent call last):", "  File x", "KeyError: 1"):
        output.hear("node1", 1, "stderr", text)
    output.hear("node1", 1, "stdout", "still talking")
    output.close(release=False)
    assert said(output) == "node1:1 | before\nnode1:1 | still talking\n"
    assert output.held(1) == "Traceback (most recent call last):\n  File x\nKeyError: 1"
    assert output.held(0) == ""
    assert "KeyError: 1" in output.log_path(1).read_text()


def test_what_was_held_is_printed_when_nothing_failed(output):
    output.hear("node1", 1, "stderr", "Traceback (most recent call last):")
    output.hear("node1", 1, "stderr", "KeyError: coped with")
    output.close(release=True)
    assert "KeyError: coped with" in said(output)
    assert (1, "KeyError: coped with") in output.lines


def test_a_bar_redraws_and_the_next_line_starts_afresh(output):
    output.hear("node1", 0, "stderr", " 10%\r")
    output.hear("node1", 0, "stderr", " 20%\r")
    output.hear("node1", 0, "stdout", "epoch done")
    output.close(release=True)
    redrawn, last, rest = said(output).partition("node1:0 | epoch done\n")
    assert redrawn.count("\r") >= 1 and last and rest == ""
    assert "10%" in redrawn and "20%" in redrawn
    assert output.log_path(0).read_text() == "epoch done\n"


def seen(output) -> list[str]:
    """What stands on the page: a carriage return goes back, and what follows writes over it."""
    page = []
    for line in said(output).split("\n"):
        shown = ""
        for part in line.split("\r"):
            shown = part + shown[len(part) :]
        page.append(shown.rstrip())
    return page


def test_no_unfinished_bar_is_left_above_the_line_that_ends_it(output):
    """The line comes by stdout and may overtake the end of the bar, which comes by stderr."""
    output.hear("node1", 0, "stderr", "epoch 1: 83%\r")
    output.hear("node1", 0, "stdout", "epoch 1: loss 0.9")
    output.hear("node1", 0, "stderr", "   \r")
    output.hear("node1", 0, "stdout", "done")
    assert seen(output) == ["node1:0 | epoch 1: loss 0.9", "node1:0 | done", ""]


def test_a_bar_at_the_end_is_closed(output):
    output.hear("node1", 0, "stderr", " 90%\r")
    output.close(release=True)
    assert said(output).endswith("\n")


def test_quiet(tmp_path):
    out = io.StringIO()
    output = RankOutput(tmp_path, quiet=True, out=out)
    output.hear("node1", 0, "stdout", "one")
    output.tell("port 1 is taken")
    output.close(release=True)
    assert out.getvalue() == ""
    assert output.log_path(0).read_text() == "one\n"


def test_a_log_that_cannot_be_written(output):
    class Full(io.StringIO):
        def write(self, text: str) -> int:
            raise OSError(errno.ENOSPC, "No space left on device")

        def close(self) -> None:
            raise OSError(errno.ENOSPC, "No space left on device")

    output._logs[0] = Full()
    with pytest.raises(OSError, match="cannot write the run folder .*: No space left on device. Free some space"):
        output.hear("node1", 0, "stdout", "one")
    output.close(release=False)
