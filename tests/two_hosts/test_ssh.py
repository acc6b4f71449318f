"""Hosts reached over ssh: the same agent, and nothing of it outlives its connection."""

import os
import shlex
import signal
import sys
import threading
import time

import leftovers
import needs
import psutil
import pytest
import sshd
from distlab.hosts import Host, HostsError, parse
from distlab.launch import HostError
from distlab.launch.connection import ssh_command
from distlab.ports import free_port
from distlab.waiting import wait_until
from driver import later
from running import MarkedSession, Runner, seen_by

pytestmark = pytest.mark.timeout(120)

# Addresses as names: nobody has to edit the machine's hosts file.
FIRST, SECOND = "127.0.0.2", "127.0.0.3"
HOSTS = f"{FIRST}:2,{SECOND}:2"


@pytest.fixture(scope="module")
def remote_session(tmp_path_factory):
    """Warm agents on two hosts behind a real sshd."""
    needs.programs(needs.SSHD, "ssh")
    folder = tmp_path_factory.mktemp("ssh")
    sshd.write_keys(folder)
    port = free_port(FIRST)
    server = sshd.start(folder, [FIRST, SECOND], port)
    try:
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("DISTLAB_SSH", sshd.client_words(folder, port))
            with MarkedSession() as session:
                yield session
            leftovers.assert_nothing_left(session.mark, 3.0)
    finally:
        server.terminate()
        server.wait(5)


@pytest.fixture
def remote(remote_session, tmp_path, monkeypatch):
    monkeypatch.setenv("DISTLAB_RUNS", str(tmp_path / "runs"))
    runner = Runner(remote_session)
    yield runner
    agents = agents_of(remote_session)
    wait_until(lambda: not leftovers.listening(agents), 3)
    assert not leftovers.listening(agents)
    assert not ranks_of(remote_session)


def agents_of(session) -> list[int]:
    """Process ids of the agents at the far end of ssh."""
    found = leftovers.marked(session.mark)
    return [pid for pid, command in found.items() if command.endswith("-m distlab.agent") and "ssh" not in command]


def ranks_of(session) -> list[int]:
    found = []
    for agent in agents_of(session):
        for process in psutil.Process(agent).children():
            if "forkserver" in " ".join(process.cmdline()):
                found += [child.pid for child in process.children()]
    return found


def test_four_ranks_over_ssh(remote):
    assert [host.kind for host in parse(HOSTS)] == ["ssh", "ssh"]
    seen = seen_by(remote("who", "--word", "two words", hosts=HOSTS))
    assert [(rank["host"], rank["rank"], rank["local_rank"], rank["sum"]) for rank in seen] == [
        (FIRST, 0, 0, 15.0),
        (FIRST, 1, 1, 15.0),
        (SECOND, 2, 0, 15.0),
        (SECOND, 3, 1, 15.0),
    ]
    assert all(rank["arguments"] == ["--word", "two words"] for rank in seen)
    # Both hosts are on this machine, and this is the interface between them.
    assert {rank["interface"] for rank in seen} == {"lo"}
    assert remote("who", hosts=HOSTS).seconds < 5


def test_a_rank_that_raises_over_ssh(remote):
    failure = remote.fails("misbehave", "raise", "--who", "3", hosts=HOSTS)
    assert failure.message.startswith(f"rank 3 on {SECOND} raised KeyError: 'weight of rank 3'")
    assert failure.after < 5


def test_the_connection_is_lost(remote):
    session = remote.session
    remote("who", hosts=HOSTS)
    ssh = session.pids[SECOND]
    gone = {}

    def cut() -> None:
        before = len(leftovers.marked(session.mark))
        os.kill(ssh, signal.SIGKILL)
        # ssh itself, the far agent, its forkserver and tracker, and two ranks with a deaf child.
        gone["in time"] = wait_until(lambda: len(leftovers.marked(session.mark)) <= before - 6, 5)

    thread = later(lambda: len(ranks_of(session)) == 4, cut)
    failure = remote.fails("misbehave", "hang", "--who", "0", "1", "2", "3", "--deaf", "2", hosts=HOSTS)
    thread.join(10)
    assert failure.message.startswith(f"{SECOND} was lost: its agent ended with status -9")
    assert gone["in time"]
    assert all(connection.said_hello for connection in session.connect(parse(HOSTS), 10))


# -- hosts that never join, behind an ssh that only pretends ------------------------------------


@pytest.fixture
def pretend_ssh(tmp_path, monkeypatch):
    """Make `ssh` a shell script."""

    def write(text: str) -> None:
        script = tmp_path / "ssh"
        script.write_text(f"#!/bin/sh\n{text}\n")
        script.chmod(0o755)
        monkeypatch.setenv("DISTLAB_SSH", str(script))

    return write


BESIDE = [Host("node1", 1, "here", "127.0.0.1"), Host("node2", 1, "ssh", "127.0.0.1")]


def refused(runner, **more) -> tuple[str, float]:
    started = time.monotonic()
    with pytest.raises(HostError) as caught:
        runner("who", hosts=BESIDE, **more)
    assert "\n" not in str(caught.value)
    return str(caught.value), time.monotonic() - started


def test_a_host_refuses(fresh, pretend_ssh):
    pretend_ssh("echo 'ssh: connect to host node2 port 22: Connection refused' >&2; exit 255")
    message, seconds = refused(fresh)
    assert message.startswith("node2 could not join (ssh: connect to host node2 port 22: Connection refused)")
    assert "docker compose ps" in message and "`ssh node2`" in message
    assert seconds < 5


def test_a_host_never_answers(fresh, pretend_ssh, monkeypatch):
    from distlab.launch import session

    monkeypatch.setattr(session, "REMIND_SECONDS", 0.5)
    pretend_ssh("exec sleep 600")
    message, seconds = refused(fresh, timeout=3)
    assert message.startswith("node2 did not join within 3 s: is its container up? `docker compose ps`")
    assert 3 <= seconds < 6
    assert "waiting for node2 to join, 2 s left" in fresh.said


def test_a_host_without_the_package(fresh, pretend_ssh):
    pretend_ssh(f"exec {shlex.quote(sys.executable)} -S -c 'import distlab'")
    message, _ = refused(fresh)
    assert message.startswith("node2 could not join (ModuleNotFoundError: No module named 'distlab')")


def test_there_is_no_ssh(fresh, monkeypatch):
    monkeypatch.setenv("DISTLAB_SSH", "/nowhere/ssh -v")
    message, _ = refused(fresh)
    assert message == "node2 cannot be reached: '/nowhere/ssh': No such file or directory"


def test_a_shell_that_greets(fresh, pretend_ssh):
    agent = shlex.join([sys.executable, "-m", "distlab.agent"])
    pretend_ssh(f"echo 'Welcome to node2! {{'; printf 'caf\\351\\n'; echo '{{ not json'; exec {agent}")
    (connection,) = fresh.session.connect([Host("node2", 1, "ssh", "127.0.0.1")], 10)
    assert connection.said_hello and connection.alive


def test_an_interrupt_while_hosts_join(fresh, pretend_ssh):
    pretend_ssh("exec sleep 600")
    threading.Timer(1.0, lambda: os.kill(os.getpid(), signal.SIGINT)).start()
    started = time.monotonic()
    with pytest.raises(KeyboardInterrupt):
        fresh("who", hosts=BESIDE)
    assert time.monotonic() - started < 4.0
    # The host that joined stays; what led to the other is gone.
    assert list(leftovers.marked(fresh.session.mark)) == list(fresh.session.pids.values())
    assert list(fresh.session.pids) == ["node1"]


def test_what_ssh_is_told(monkeypatch):
    monkeypatch.setenv("DISTLAB_SSH", "ssh -F 'my config'")
    monkeypatch.setenv("DISTLAB_REMOTE_PYTHON", "/opt/lab/bin/python")
    monkeypatch.setenv("DISTLAB_REMOTE_WORKSPACE", "/home/my work")
    words = ssh_command(Host("node2", 2, "ssh", "10.0.0.2"))
    assert words[:3] == ["ssh", "-F", "my config"]
    assert "BatchMode=yes" in words and "ConnectTimeout=10" in words
    assert words[-2:] == ["node2", "cd '/home/my work' && exec /opt/lab/bin/python -m distlab.agent"]


def test_hosts_that_cannot_be_meant(monkeypatch):
    monkeypatch.setenv("DISTLAB_TRANSPORT", "ssh")
    with pytest.raises(HostsError, match="host node2.invalid does not resolve: check the name"):
        parse("node2.invalid:2")
    with pytest.raises(HostsError, match="localhost beside other hosts"):
        parse(f"localhost:2,{FIRST}:2")
