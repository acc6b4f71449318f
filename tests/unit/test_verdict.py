"""Who is to blame, from what is known of how each rank ended."""

import signal

import pytest
from distlab.launch.verdict import Ending, blame, describe_late, exit_status, lost_a_peer, trim_stack

LOST = "[/gloo/transport/tcp/pair.cc:561] Connection closed by peer [127.0.0.1]:9402."


def host(rank):
    return "node1" if rank < 2 else "node2"


def raised(rank, kind="RuntimeError", message=LOST, time=10.0):
    text = f'Traceback (most recent call last):\n  File "x.py", line 3, in <module>\n{kind}: {message}'
    return Ending(
        rank, host(rank), 1, {"how": "raised", "type": kind, "message": message, "time": time, "traceback": text}
    )


def left(rank, status=0, time=9.0, said=""):
    return Ending(rank, host(rank), status, {"how": "left", "status": status, "said": said, "time": time})


def completed(rank):
    return Ending(rank, host(rank), None, {"how": "completed", "status": 0, "time": 11.0})


def killed(rank, number, held=""):
    return Ending(rank, host(rank), -number, {}, held, vanished=True)


def stopped(rank):
    return Ending(rank, host(rank), None, {})


def test_all_went_well():
    assert blame([completed(0), completed(1)]) is None
    assert blame([left(0), left(1)]) is None


def test_the_first_error_of_a_ranks_own():
    ends = [raised(0, time=9.0), raised(1, "KeyError", "'b'", time=12.0), raised(2, "ValueError", "a", time=11.0)]
    assert blame(ends).startswith("rank 2 on node2 raised ValueError: a\nTraceback")


def test_a_lost_peer_is_never_the_cause_while_there_is_another():
    assert blame([raised(0), killed(3, signal.SIGKILL)]).startswith(
        "rank 3 on node2 was killed by SIGKILL. Was memory short?"
    )
    assert blame([raised(0), left(1, status=3)]) == "rank 1 on node1 ended with status 3"
    assert blame([raised(0), left(1, status=1, said="no data")]) == "rank 1 on node1 ended with status 1: no data"
    assert blame([raised(0), stopped(1)], {"node2": "node2 was lost"}) == "node2 was lost"
    assert blame([raised(0), left(2)]).startswith("rank 2 on node2 left early with status 0, while rank 0 on node1")


@pytest.mark.parametrize(
    ("kind", "message", "lost"),
    [
        ("RuntimeError", LOST, True),
        ("RuntimeError", "Read error [127.0.0.1]:42708: Connection reset by peer", True),
        ("RuntimeError", "Timed out waiting 10000ms for recv operation to complete", True),
        ("DistBackendError", "NCCL error: unhandled system error", True),
        ("DistNetworkError", "anything", True),
        ("TimeoutError", "rank 0 on node1: rank 2 of 4 did not join within 60 s. Is each started", True),
        ("RuntimeError", "rank 1 on node1 does not find the ranks' store at node1:29500: is something", True),
        # The same words about a connection of the script's own.
        ("ConnectionRefusedError", "Connection refused", False),
        ("BrokenPipeError", "[Errno 32] Broken pipe", False),
        ("TimeoutError", "the download timed out", False),
        ("RuntimeError", "CUDA out of memory", False),
        ("KeyError", "'reset by peer'", False),
    ],
)
def test_what_counts_as_a_lost_peer(kind, message, lost):
    assert lost_a_peer(raised(0, kind, message)) is lost


def test_terminated_is_the_weakest_cause():
    ended = killed(0, signal.SIGTERM)
    assert blame([ended, killed(1, signal.SIGKILL)]) == "rank 1 on node1 was killed by SIGKILL. Was memory short?"
    assert blame([ended, left(1, status=2)]) == "rank 1 on node1 ended with status 2"
    assert blame([raised(0), killed(1, signal.SIGTERM)]) == "rank 1 on node1 was killed by SIGTERM."


def test_a_crash_shows_where():
    held = 'Fatal Python error: Segmentation fault\n\nThread 0x01 (most recent call first):\n  File "x.py", line 3 in f'
    message = blame([killed(1, signal.SIGSEGV, held), raised(0)])
    assert message.startswith("rank 1 on node1 was killed by SIGSEGV.\nFatal Python error: Segmentation fault")
    assert message.endswith('File "x.py", line 3 in f')
    assert blame([killed(1, 63)]) == "rank 1 on node1 was killed by signal 63."


def test_a_rank_that_ends_by_os_exit():
    gone = Ending(1, "node1", 0, {}, vanished=True)
    assert blame([raised(0), gone]).startswith("rank 1 on node1 left early with status 0")
    assert blame([stopped(0), gone]).startswith("rank 1 on node1 vanished without a word: os._exit()")


def test_only_lost_peers_and_nobody_else_known():
    assert blame([raised(1, time=12.0), raised(0, time=11.0)]).startswith("rank 0 on node1 raised RuntimeError")


def test_a_rank_that_a_collective_waited_for_in_vain():
    late = raised(0, message="Timed out waiting 2000ms for recv operation to complete")
    message = blame([late, stopped(1), raised(2, message=LOST, time=12.0), stopped(3)])
    assert message.startswith(
        "rank 1 on node1 and rank 3 on node2 did not take part in what rank 0 on node1 waited for.\n"
    )


def test_a_rank_that_was_terminated_for_it_is_still_the_one():
    late = raised(3, message="Timed out waiting 2000ms for recv operation to complete")
    assert blame([late, killed(2, signal.SIGTERM)]).startswith("rank 2 on node2 did not take part in what rank 3")


def test_ranks_that_cannot_connect():
    message = "Gloo connectFullMesh failed with [pair.cc:152] timed out connecting: SO_ERROR: Connection refused"
    said = blame([stopped(0), raised(1, message=message)])
    assert said.startswith("rank 1 on node1 cannot connect to the other ranks") and "GLOO_SOCKET_IFNAME" in said


def test_time_is_up():
    assert describe_late([stopped(0), completed(1), stopped(2)], 8.0).startswith(
        "not done after 8 s: rank 0 on node1, 2 on node2 still ran. Stopped;"
    )
    assert "still ran, but rank 1 on node1 had left with status 0." in describe_late([stopped(0), left(1)], 8.0)
    assert describe_late([completed(0)], 8.0).startswith("not done after 8 s: the launcher did not end.")


def test_exit_status():
    assert exit_status(killed(0, signal.SIGKILL)) == -9
    assert exit_status(left(0, status=3)) == 3
    assert exit_status(stopped(0)) == 0


def test_a_stack_without_whoever_started_it():
    text = """Current thread 0x00007f2b (most recent call first):
  File "/x/torch/distributed/distributed_c10d.py", line 3913 in all_reduce
  File "/x/train.py", line 77 in <module>
  File "<frozen runpy>", line 88 in _run_code
  File "/y/distlab/agent/rank.py", line 40 in run_script
  File "/z/multiprocessing/process.py", line 108 in run
  File "<string>", line 1 in <module>

Extension modules: numpy.core (total: 1)"""
    assert trim_stack(text) == (
        "(most recent call first):\n"
        '  File "/x/torch/distributed/distributed_c10d.py", line 3913 in all_reduce\n'
        '  File "/x/train.py", line 77 in <module>'
    )
