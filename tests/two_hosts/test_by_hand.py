"""Ranks started by hand, as in the four-terminal drill: who is missing or wrong is named."""

import os
import socket
import subprocess
import sys
import threading
import time
from contextlib import suppress

import pytest
from by_hand import LAUNCHED, start
from distlab import process
from distlab.ports import free_port
from running import SCRIPTS

pytestmark = pytest.mark.timeout(60)

JOIN = "from distlab import process\nwith process.group() as me: print('sum of', me.world_size, me.host, me.device)"
ALONE = "from distlab import process\nwith process.alone() as me: print('alone', me.world_size)"


@pytest.fixture
def port():
    return free_port()


@pytest.fixture
def rank(tmp_path, port):
    """Starts one rank of several on this machine."""

    def start_one(number: object, world_size: int, code: str = JOIN, **more: object):
        more = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port, "DISTLAB_HOST": f"node{number}"} | more
        return start(tmp_path, code, RANK=number, WORLD_SIZE=world_size, **more)

    return start_one


def last_line(text: str) -> str:
    return text.strip().splitlines()[-1]


def test_two_terminals(tmp_path, port):
    # As a person would: whole processes, no launcher.
    common = {name: value for name, value in os.environ.items() if name not in LAUNCHED}
    common |= {"WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), "DISTLAB_RUNS": str(tmp_path)}
    both = [
        subprocess.Popen(
            [sys.executable, SCRIPTS / "hello.py"],
            env=common | {"RANK": str(rank), "DISTLAB_HOST": f"node{rank + 1}"},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for rank in (0, 1)
    ]
    said = [process.communicate(timeout=40) for process in both]
    assert [process.returncode for process in both] == [0, 0]
    assert said[0][0].splitlines()[-1] == "rank 0 of 2 on node1"
    assert said[1] == ("rank 1 of 2 on node2\n", "")


def test_one_terminal(tmp_path):
    status, out, err = start(tmp_path, JOIN).end()
    assert (status, out, err) == (0, f"sum of 1 {socket.gethostname()} cpu\n", "")


def test_missing_ranks_are_named_at_the_deadline(rank):
    both = [rank(number, 4, DISTLAB_JOIN_TIMEOUT=3) for number in (0, 2)]
    answers = [started.end() for started in both]
    assert all(status == 1 for status, *_ in answers)
    assert "rank 0 on node0: rank 1, 3 of 4 did not join within 3 s." in last_line(answers[0][2])
    assert all("Timed out" not in err for *_, err in answers)


def test_rank_0_is_missing(rank, port):
    started = time.monotonic()
    status, _, err = rank(1, 2, DISTLAB_JOIN_TIMEOUT=2).end()
    assert status == 1 and 2 < time.monotonic() - started < 12
    assert f"rank 1 on node1 found nobody on 127.0.0.1:{port} within 2 s" in last_line(err)
    assert "is rank 0 started there" in last_line(err)


def test_something_is_said_while_ranks_wait(rank, port):
    code = "from distlab.process import meeting\nmeeting.SECONDS_BETWEEN_NOTICES = 0.5\n" + JOIN
    lonely = rank(5, 6, code, DISTLAB_JOIN_TIMEOUT=2, MASTER_PORT=1)
    both = [rank(number, 3, code, DISTLAB_JOIN_TIMEOUT=3) for number in (0, 1)]
    said = [started.end()[2] for started in both]
    assert "waiting for rank 2 of 3, " in said[0] and " s left" in said[0]
    # One rank speaks for all who wait.
    assert "waiting for" not in said[1]
    assert "rank 5 on node5 waits for rank 0 at 127.0.0.1:1, " in lonely.end()[2]


def test_two_processes_claim_one_rank(rank):
    three = [rank(number, 3, DISTLAB_JOIN_TIMEOUT=3) for number in (0, 1, 1)]
    answers = [started.end() for started in three]
    assert any("two processes say they are rank 1; this one is on node1" in err for *_, err in answers)
    assert all(status == 1 for status, *_ in answers)


def test_a_master_that_does_not_resolve(rank):
    status, _, err = rank(1, 2, MASTER_ADDR="node1.invalid").end(20)
    assert status == 1
    assert "rank 1 on node1 cannot resolve MASTER_ADDR='node1.invalid'" in last_line(err)
    assert "one network" in last_line(err)


def test_the_master_port_is_taken(rank):
    with socket.create_server(("0.0.0.0", 0)) as holder:
        taken = holder.getsockname()[1]
        status, _, err = rank(0, 2, MASTER_PORT=taken).end()
    assert status == 1
    assert f"rank 0 on node0 cannot listen on port {taken}: Address already in use" in last_line(err)
    assert "Set MASTER_PORT to another number on every rank" in last_line(err)


def silent(connection: socket.socket) -> None:
    time.sleep(20)


def hangs_up(connection: socket.socket) -> None:
    connection.close()


def speaks_http(connection: socket.socket) -> None:
    connection.recv(100)
    connection.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n" * 8)
    connection.close()


@pytest.mark.parametrize("answer", [silent, hangs_up, speaks_http], ids=lambda answer: answer.__name__)
def test_something_else_listens_on_the_master_port(rank, answer):
    with socket.create_server(("127.0.0.1", 0)) as other:

        def serve() -> None:
            with suppress(OSError):
                while True:
                    threading.Thread(target=answer, args=[other.accept()[0]], daemon=True).start()

        threading.Thread(target=serve, daemon=True).start()
        taken, started = other.getsockname()[1], time.monotonic()
        status, _, err = rank(1, 2, MASTER_PORT=taken, DISTLAB_JOIN_TIMEOUT=1).end(40)
    assert status == 1 and time.monotonic() - started < 15
    assert f"rank 1 on node1 does not find the ranks' store at 127.0.0.1:{taken}: is something else there" in err
    assert "Set MASTER_PORT to another number on every rank" in last_line(err)


@pytest.mark.parametrize(
    ("rank_text", "world_size", "more", "expected"),
    [
        ("one", 2, {}, "RANK='one' is not a whole number"),
        (2, 2, {}, "RANK=2 lies outside WORLD_SIZE=2: ranks count from 0 to 1"),
        (1, None, {}, "RANK is set but WORLD_SIZE is not: set both, or start with torchrun"),
        (None, 4, {}, "WORLD_SIZE is set but RANK is not: set both, or start with torchrun"),
        (0, 2, {"MASTER_ADDR": None}, "MASTER_ADDR=None and MASTER_PORT="),
        (0, 2, {"MASTER_PORT": "many"}, "MASTER_PORT='many' do not say where rank 0 is"),
        (0, 2, {"MASTER_PORT": 70000}, "MASTER_PORT='70000' do not say where rank 0 is"),
        (0, 1, {"MASTER_ADDR": None, "DISTLAB_DEVICE": "tpu"}, "DISTLAB_DEVICE='tpu' is unknown: use cpu or cuda"),
        (0, 1, {"MASTER_ADDR": None, "DISTLAB_BACKEND": "mpi"}, "DISTLAB_BACKEND='mpi' is unknown: use gloo or nccl"),
        (0, 2, {"DISTLAB_JOIN_TIMEOUT": "soon"}, "DISTLAB_JOIN_TIMEOUT='soon' is not a number of seconds"),
        (0, 1, {"MASTER_ADDR": None, "DISTLAB_COLLECTIVE_TIMEOUT": "-1"}, "DISTLAB_COLLECTIVE_TIMEOUT='-1' is not"),
    ],
)
def test_what_is_set_wrong_is_named_at_once(monkeypatch, rank_text, world_size, more, expected):
    for name in LAUNCHED:
        monkeypatch.delenv(name, raising=False)
    right = {"RANK": rank_text, "WORLD_SIZE": world_size, "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "1"}
    for name, value in (right | more).items():
        if value is not None:
            monkeypatch.setenv(name, str(value))
    with pytest.raises((ValueError, RuntimeError)) as caught, process.group():
        pass
    assert expected in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_script_for_one_process_refuses_to_be_two(warm, tmp_path):
    script = tmp_path / "alone.py"
    script.write_text(ALONE)
    failure = warm.fails(script, hosts="node1:1,node2:1")
    first = failure.message.splitlines()[0]
    assert "alone.py is written for one process but was started as 2 ranks" in first and "--hosts node1:1" in first
    assert warm(script, hosts="node1:1").text(0).endswith("alone 1")
