"""The cold path starts real torchrun commands and gives what the warm path gives."""

import os
import signal
import socket
import threading

import leftovers
import psutil
import pytest
from distlab.hosts import simulated
from distlab.hosts.gpus import Gpu
from distlab.launch import running as launch_running
from distlab.ports import free_port
from distlab.waiting import wait_until
from driver import later
from running import TWO_BY_TWO, seen_by

pytestmark = pytest.mark.timeout(120)

UNEVEN = "node1:1,node2:2"


def torchruns(agent: int) -> list[int]:
    return [process.pid for process in psutil.Process(agent).children() if "torchrun" in " ".join(process.cmdline())]


def test_cold_and_warm_give_the_same(warm, fresh, monkeypatch):
    warm_seen = seen_by(warm("who", "--word", "x", hosts=UNEVEN))
    four = [Gpu(str(index), "pretended", 2**30) for index in range(4)]
    monkeypatch.setattr(simulated, "list_gpus", lambda: four)
    result = fresh("who", "--word", "x", hosts=UNEVEN, cold=True)
    cold_seen = seen_by(result)
    # Each host has its own share of the GPUs of this machine.
    assert [rank["gpus"] for rank in cold_seen] == ["0,1", "2,3", "2,3"]
    for cold, hot in zip(cold_seen, warm_seen, strict=True):
        apart = {"gpus", "master"}
        assert {name: cold[name] for name in cold.keys() - apart} == {name: hot[name] for name in hot.keys() - apart}
    assert [(end.rank, end.host, end.how, end.status) for end in result.ranks] == [
        (0, "node1", "completed", 0),
        (1, "node2", "completed", 0),
        (2, "node2", "completed", 0),
    ]
    # The port in the command shown is the one that was used.
    assert f"--master-port {cold_seen[0]['master'].rpartition(':')[2]} " in result.command["node1"]


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (("raise",), "rank 1 on node2 raised KeyError: 'weight of rank 1'\nTraceback"),
        (("SIGKILL", "--others", "sleep"), "rank 1 on node2 was killed by SIGKILL. Was memory short?"),
        (("exit0",), "rank 1 on node2 left early with status 0, while rank 0 on node1"),
    ],
)
def test_the_right_rank_is_blamed(warm, words, expected):
    failure = warm.fails("misbehave", *words, hosts="node1:1,node2:1", cold=True)
    assert failure.message.startswith(expected)
    assert "closed by peer" not in failure.message + failure.said
    assert failure.after < 5


def test_the_terminated_rank_is_blamed_and_not_its_neighbour(warm):
    # torchrun terminates the neighbour in the same way, a moment later.
    words = ("SIGTERM", "--who", "1", "--others", "sleep")
    failure = warm.fails("misbehave", *words, hosts="node1:2", cold=True)
    assert failure.message.startswith("rank 1 on node1 was killed by SIGTERM")


def test_stacks_at_the_deadline(warm):
    failure = warm.fails("misbehave", "hang", "--who", "0", hosts="node1:1", cold=True, timeout=14)
    assert failure.message.startswith("not done after 14 s: rank 0 on node1 still ran")
    assert "--- rank 0 on node1 stood here:" in failure.message and "in hang_here" in failure.message


def test_torchrun_is_killed(warm):
    agent = warm.session.pids["node2"]

    def ranks_are_there() -> bool:
        return sum("misbehave.py" in text for text in leftovers.marked(warm.session.mark).values()) >= 6

    later(ranks_are_there, lambda: os.kill(torchruns(agent)[0], signal.SIGKILL))
    sleep = ("hang", "--who", "0", "1", "2", "3", "--at", "bare", "--deaf", "2")
    failure = warm.fails("misbehave", *sleep, cold=True)
    assert failure.message.startswith("node2: torchrun was killed by SIGKILL")
    assert failure.seconds < 25


def test_a_port_that_is_taken_at_the_last_moment_is_given_up(warm, monkeypatch):
    find, asked = launch_running._find_rendezvous, []
    with socket.create_server(("0.0.0.0", 0)) as holder:
        taken = holder.getsockname()[1]

        def find_too_late(*arguments: object) -> tuple:
            meeting = find(*arguments)
            asked.append(meeting)
            return meeting._replace(port=taken) if len(asked) == 1 else meeting

        monkeypatch.setattr(launch_running, "_find_rendezvous", find_too_late)
        result = warm("who", hosts="node1:1,node2:1", cold=True, master_port=taken)
    assert f"port {taken} is taken on node1; using {asked[0].port}" in warm.said
    assert f"port {taken} was taken in the meantime; trying another" in warm.said
    assert len(asked) == 2 and result.ok
    assert all(rank["sum"] == 3 for rank in seen_by(result))


def test_a_wanted_port_that_is_taken(warm):
    with socket.create_server(("127.0.0.1", 0)) as holder:
        taken = holder.getsockname()[1]
        result = warm("who", hosts="node1:1,node2:1", master_port=taken)
    used = int(seen_by(result)[0]["master"].rpartition(":")[2])
    assert used != taken
    assert f"port {taken} is taken on node1; using {used}" in warm.said


def test_a_wanted_port_that_is_free(warm):
    free = free_port()
    # A second time, too: nothing of the first run still holds it.
    for _ in range(2):
        result = warm("who", hosts=TWO_BY_TWO, master_port=free)
        assert {rank["master"] for rank in seen_by(result)} == {f"127.0.0.1:{free}"}


def test_two_runs_at_once_want_one_port(warm, fresh):
    wanted = free_port()
    # In two sessions, as from two notebooks.
    first: dict[str, object] = {}
    talk = threading.Thread(
        target=lambda: first.update(result=warm("talk", "live", hosts="node1:1,node2:1", master_port=wanted))
    )
    talk.start()
    wait_until(lambda: wanted in leftovers.listening(warm.session.pids.values()), 20)
    second = fresh("who", hosts="node1:1", master_port=wanted, cold=True)
    talk.join(30)
    assert first["result"].ok and second.ok
    used = seen_by(second)[0]["master"].rpartition(":")[2]
    assert f"port {wanted} is taken on node1; using {used}" in fresh.said
    assert "is taken" not in warm.said
