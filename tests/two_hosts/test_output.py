"""What ranks print arrives while they run, whole, in order, with its host and rank."""

import io
import threading
import time

import pytest
from distlab.launch import run
from running import script_path

pytestmark = pytest.mark.timeout(60)
HOSTS = "node1:1,node2:1"


class Clock(io.StringIO):
    """Notes when each line is printed."""

    def __init__(self) -> None:
        super().__init__()
        self.times: list[tuple[float, str]] = []

    def write(self, text: str) -> int:
        self.times.append((time.monotonic(), text))
        return super().write(text)

    def when(self, text: str) -> float:
        return next(moment for moment, said in self.times if text in said)


def log_of(result, rank):
    return next(open(end.log, encoding="utf-8").read() for end in result.ranks if end.rank == rank)


def test_lines_arrive_while_the_job_runs(warm):
    out = Clock()
    run(script_path("talk"), "live", hosts=HOSTS, session=warm.session, out=out, timeout=30)
    for place in ("node1:0", "node2:1"):
        gap = out.when(f"{place} | second") - out.when(f"{place} | first")
        assert 1.2 < gap < 3.0


def test_nothing_of_a_flood_is_lost_or_out_of_order(warm):
    lines = 20_000
    result = warm("talk", "flood", str(lines), hosts="node1:2,node2:2")
    for rank in range(4):
        expected = [f"{rank} {number}" for number in range(lines)]
        assert result.text(rank).splitlines() == expected
        assert log_of(result, rank).splitlines() == expected
    assert result.seconds < 20


def test_a_bar_redraws_one_line_and_stays_out_of_the_log(warm):
    result = warm("talk", "bars", hosts="node1:1")
    assert "\rnode1:0 | step 2 ████ 3.0 images/s" in warm.said
    assert "step 3" in warm.said and "after the bar" in result.text(0)
    assert "step 1" not in log_of(result, 0)
    # A whole line starts afresh and does not write over the bar.
    assert "\nnode1:0 | after the bar\n" in warm.said


def test_bytes_that_are_no_text(warm):
    result = warm("talk", "bytes", hosts=HOSTS)
    for rank in (0, 1):
        said = result.text(rank)
        assert said.startswith("caf\N{REPLACEMENT CHARACTER}") and said.splitlines()[0].endswith("€")
        assert "then text: \N{SNOWMAN} and a lone half \\ud83d" in said


def test_a_very_long_line(warm):
    result = warm("talk", "long", hosts=HOSTS)
    for rank in (0, 1):
        first, last = result.text(rank).splitlines()
        assert len(first) == 3_000_003 and first.endswith("xend")
        assert last == "no newline at the end"


def test_the_last_words_of_a_rank_that_dies_at_once(warm):
    failure = warm.fails("talk", "die", hosts=HOSTS)
    assert "was killed by SIGKILL" in failure.message
    said = {rank: failure.result.text(rank) for rank in (0, 1)}
    assert any("last words on stdout" in text and "last words on stderr" in text for text in said.values())


def test_an_error_that_the_script_copes_with_is_shown_and_is_no_failure(warm):
    result = warm("talk", "survived", hosts="node1:1")
    assert result.ok
    assert "KeyError: 'coped with'" in result.text(0) and "KeyError: 'coped with'" in warm.said
    assert "done" in result.text(0)


def test_children_of_a_rank_print_into_its_log_and_nobody_reads_the_launchers_messages(warm):
    result = warm("talk", "child", hosts=HOSTS)
    for rank in (0, 1):
        assert "from a child" in log_of(result, rank)
        assert "stdin: ''" in log_of(result, rank)


def test_quiet_prints_nothing_and_keeps_the_logs(warm):
    result = warm("talk", "flood", "3", hosts=HOSTS, quiet=True)
    assert warm.said == ""
    assert log_of(result, 1).splitlines() == ["1 0", "1 1", "1 2"]


def test_two_runs_at_once_in_one_notebook_are_told_apart(warm):
    answers = {}

    def second() -> None:
        try:
            answers["second"] = warm("talk", "flood", "2", hosts=HOSTS).ok
        except Exception as error:
            answers["second"] = str(error)

    thread = threading.Thread(target=second)
    threading.Timer(0.8, thread.start).start()
    assert run(script_path("talk"), "live", hosts=HOSTS, session=warm.session, quiet=True, timeout=30).ok
    thread.join(30)
    assert answers["second"] is True or "another run" in answers["second"]
