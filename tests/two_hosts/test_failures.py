"""A rank fails: the right one is blamed, once, soon, and nothing is left."""

import signal

import pytest
from blame import SOON, assert_blames

pytestmark = pytest.mark.timeout(60)


@pytest.mark.parametrize("others", ["reduce", "sleep"])
@pytest.mark.parametrize("who", [0, 1, 3])
def test_a_rank_raises(warm, who, others):
    failure = warm.fails("misbehave", "raise", "--who", str(who), "--others", others)
    host = "node1" if who < 2 else "node2"
    assert_blames(failure, f"rank {who} on {host} raised KeyError: 'weight of rank {who}'\nTraceback")
    # The frames shown are the script's own.
    frames = [line for line in failure.message.splitlines() if line.startswith("  File ")]
    assert len(frames) == 2 and all("misbehave.py" in frame for frame in frames)
    assert "Traceback" not in failure.said
    assert failure.how()[who] == "raised"
    assert next(end.status for end in failure.result.ranks if end.rank == who) == 1


def test_an_import_fails_before_the_rank_joins(warm):
    failure = warm.fails("misbehave", "import", "--at", "early", "--who", "2")
    assert_blames(failure, "rank 2 on node2 raised ModuleNotFoundError: No module named 'no_such_module_anywhere'")


def test_every_rank_raises_the_same_before_it_joins(warm):
    failure = warm.fails("misbehave", "import", "--at", "early", "--who", "0", "1", "2", "3")
    assert "raised ModuleNotFoundError" in failure.message.splitlines()[0]
    assert failure.message.count("Traceback") == 1
    assert failure.after < SOON


def test_a_script_that_is_no_python(warm, tmp_path):
    script = tmp_path / "broken.py"
    script.write_text("import os\nfor number in range(3:\n    pass\n")
    failure = warm.fails(script)
    assert "raised SyntaxError" in failure.message.splitlines()[0]
    assert 'broken.py", line 2' in failure.message
    assert "for number in range(3:" in failure.message
    assert failure.seconds < SOON


def test_a_wrong_option_shows_the_usage_once(warm):
    failure = warm.fails("misbehave", "raise", no_such_option=3)
    assert "ended with status 2" in failure.message.splitlines()[0]
    assert failure.message.count("usage: ") == 1
    assert failure.message.count("unrecognized arguments: --no-such-option 3") == 1


@pytest.mark.parametrize("at", ["early", "group"])
@pytest.mark.parametrize("others", ["reduce", "sleep"])
def test_a_rank_leaves_with_a_status(warm, at, others):
    failure = warm.fails("misbehave", "exit3", "--who", "1", "--at", at, "--others", others)
    assert_blames(failure, "rank 1 on node1 ended with status 3\n")
    assert next((end.how, end.status) for end in failure.result.ranks if end.rank == 1) == ("left", 3)


def test_what_a_rank_says_when_it_leaves_is_shown(warm):
    assert_blames(
        warm.fails("misbehave", "say", "--who", "3"),
        "rank 3 on node2 ended with status 1: the learning rate is negative\n",
    )


@pytest.mark.parametrize("mode", ["exit0", "vanish0"])
@pytest.mark.parametrize("who", [0, 2])
def test_a_rank_leaves_early_as_if_all_were_well(warm, who, mode):
    failure = warm.fails("misbehave", mode, "--who", str(who))
    host = "node1" if who < 2 else "node2"
    assert_blames(failure, f"rank {who} on {host} left early with status 0, while rank")
    assert "Traceback" not in failure.message


def test_a_rank_leaves_without_joining(warm):
    # Only at the deadline is it known that the others waited for it.
    failure = warm.fails("misbehave", "exit0", "--at", "early", "--who", "1", timeout=5)
    assert failure.message.startswith("not done after 5 s: rank 0 on node1, 2 on node2, 3 on node2 still ran")
    assert "but rank 1 on node1 had left with status 0" in failure.message.splitlines()[0]
    assert "--- rank 1" not in failure.message
    assert failure.seconds < 8


def test_a_rank_leaves_without_joining_and_the_others_give_up(warm):
    failure = warm.fails("misbehave", "exit0", "--at", "early", "--who", "1", env={"DISTLAB_JOIN_TIMEOUT": 2})
    assert failure.message.startswith("rank 1 on node1 left early with status 0, while rank")


def test_a_rank_vanishes_where_nobody_waits_for_it(warm):
    # The elastic agent itself would wait for this one for ever.
    failure = warm.fails("misbehave", "vanish0", "--at", "bare", "--others", "finish")
    assert failure.message.startswith("rank 1 on node1")
    assert "sys.exit" in failure.message or "left early" in failure.message
    assert failure.after < SOON


@pytest.mark.parametrize(
    ("name", "hint"),
    [("SIGKILL", " Was memory short?"), ("SIGSEGV", "\nFatal Python error: Segmentation fault"), ("SIGABRT", "")],
)
@pytest.mark.parametrize("others", ["reduce", "sleep"])
def test_a_rank_is_killed(warm, name, hint, others):
    failure = warm.fails("misbehave", name, "--who", "2", "--others", others)
    assert_blames(failure, f"rank 2 on node2 was killed by {name}.{hint}")
    ends = {end.rank: end for end in failure.result.ranks}
    assert (ends[2].how, ends[2].status) == ("killed", -getattr(signal, name))
    assert [rank for rank, end in ends.items() if end.how == "killed"] == [2]


@pytest.mark.parametrize("others", ["reduce", "sleep"])
def test_a_rank_is_terminated_by_someone(warm, others):
    failure = warm.fails("misbehave", "SIGTERM", "--who", "1", "--others", others)
    assert failure.message.startswith("rank 1 on node1 was killed by SIGTERM")
    assert failure.how()[1] == "killed"


def test_a_rank_is_killed_before_it_joins(warm):
    failure = warm.fails("misbehave", "SIGKILL", "--at", "early", "--who", "3")
    assert_blames(failure, "rank 3 on node2 was killed by SIGKILL")


def test_a_rank_beside_it_ignores_signals(warm):
    # The elastic agent itself would wait for half a minute.
    failure = warm.fails("misbehave", "raise", "--who", "1", "--deaf", "0", "--others", "sleep")
    assert_blames(failure, "rank 1 on node1 raised KeyError")


def test_words_of_a_lost_connection_can_be_the_cause_too(warm):
    failure = warm.fails("misbehave", "refused", "--at", "bare", "--others", "finish")
    assert failure.message.startswith("rank 1 on node1 raised ConnectionRefusedError: the data server says")


def test_a_rank_hangs_in_a_collective(warm):
    failure = warm.fails("misbehave", "hang", "--who", "1", timeout=5)
    assert failure.message.startswith(
        "not done after 5 s: rank 0 on node1, 1 on node1, 2 on node2, 3 on node2 still ran"
    )
    assert 5 <= failure.seconds < 8.5
    stacks = failure.message.split("--- rank ")[1:]
    assert [stack[:16].partition(" stood")[0] for stack in stacks] == [
        "0 on node1",
        "1 on node1",
        "2 on node2",
        "3 on node2",
    ]
    assert "in hang_here" in stacks[1] and "all_reduce" not in stacks[1]
    for rank in (0, 2, 3):
        assert "in all_reduce" in stacks[rank] and "hang_here" not in stacks[rank]
    assert not any("runpy" in stack or "/launch/" in stack for stack in stacks)
    assert all(end.how == "stopped" for end in failure.result.ranks)
    assert warm("who").ok


def test_a_rank_that_takes_no_part_in_a_collective_is_named(warm):
    # Known by the time-out of the collective, long before the deadline of the run.
    failure = warm.fails("misbehave", "hang", "--who", "2", env={"DISTLAB_COLLECTIVE_TIMEOUT": 2})
    first = failure.message.splitlines()[0]
    assert first.startswith("rank 2 on node2 did not take part in what rank ") and first.endswith(" waited for.")
    assert failure.message.count("Traceback") == 1
    assert failure.after < 2 + SOON


def test_ranks_that_ignore_signals_and_their_children_end_at_the_deadline(warm):
    failure = warm.fails("misbehave", "hang", "--who", "0", "1", "2", "3", "--deaf", "3", timeout=4)
    assert failure.seconds < 7.5
    assert len(failure.result.stacks) == 4


def test_the_next_run_is_warm_after_a_failure(warm):
    before = warm.session.pids
    warm.fails("misbehave", "raise")
    assert warm("who").seconds < 5
    assert warm.session.pids == before
