"""Whoever is killed or interrupted, in whatever order: nothing runs or listens a moment later."""

import os
import signal
import subprocess
import sys
import time

import leftovers
import psutil
import pytest
from distlab.waiting import wait_until
from driver import Driver, later, sleeping_ranks
from running import TWO_BY_TWO, marked_environment

pytestmark = pytest.mark.timeout(90)

SLEEP = ("hang", "--who", "0", "1", "2", "3", "--at", "bare", "--deaf", "0")


@pytest.mark.parametrize("how", ["warm", "cold"])
def test_an_interrupt_leaves_nothing_after_three_seconds(mark, how):
    driver = Driver(mark, *SLEEP, how=how)
    driver.wait_for("| started", 4)
    started = time.monotonic()
    assert driver.end_by(signal.SIGINT, within=8) < 3.0
    leftovers.assert_nothing_left(mark, 3.0 - (time.monotonic() - started))
    assert driver.process.returncode != 0
    assert driver.said.rstrip().endswith("KeyboardInterrupt")


def test_an_interrupt_while_the_hosts_still_import_leaves_nothing(mark):
    driver = Driver(mark, *SLEEP)
    driver.wait_for("driver up", 1)
    wait_until(lambda: any("forkserver" in command for command in leftovers.marked(mark).values()), 20)
    started = time.monotonic()
    assert driver.end_by(signal.SIGINT, within=8) < 3.0
    leftovers.assert_nothing_left(mark, 3.0 - (time.monotonic() - started))
    assert driver.said.rstrip().endswith("KeyboardInterrupt")


@pytest.mark.parametrize(
    ("how", "number", "hosts"),
    [
        ("warm", signal.SIGKILL, TWO_BY_TWO),
        ("warm", signal.SIGTERM, "node1:2"),
        ("cold", signal.SIGKILL, "node1:2"),
        ("cold", signal.SIGTERM, "node1:2"),
    ],
)
def test_a_killed_notebook_leaves_nothing(mark, how, number, hosts):
    driver = Driver(mark, *SLEEP, hosts=hosts, how=how)
    driver.wait_for("| started", 4 if hosts == TWO_BY_TWO else 2)
    assert leftovers.marked(mark).keys() - {driver.process.pid}
    driver.end_by(number, within=3)
    leftovers.assert_nothing_left(mark, 5.0)


def test_an_agent_dies_with_a_message_half_read(mark):
    agent = subprocess.Popen(
        [sys.executable, "-m", "distlab.agent"],
        env=marked_environment(mark),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    agent.stdin.write(b'{"do": "hello", "env": {}}\nno message at all\n{"broken": \n')
    agent.stdin.flush()
    assert b'"hello"' in agent.stdout.readline()
    agent.stdin.write(b'{"do": "sta')
    agent.stdin.close()
    assert agent.wait(5) == 0
    leftovers.assert_nothing_left(mark, 1.0)


# -- parts of a run are killed, in a session that goes on --------------------------------------


def fail_by(runner, victim):
    """A run of sleeping ranks in which `victim(agent)` is killed once ranks and a deaf child are there."""
    agent = runner.session.pids["node2"]

    def all_there() -> bool:
        deaf = any("SIG_IGN" in command for command in leftovers.marked(runner.session.mark).values())
        return deaf and len(sleeping_ranks(agent)) == 2

    later(all_there, lambda: os.kill(victim(agent), signal.SIGKILL))
    return runner.fails("misbehave", "hang", "--who", "0", "1", "2", "3", "--deaf", "2")


def test_a_rank_is_killed_from_outside(warm):
    failure = fail_by(warm, lambda agent: max(sleeping_ranks(agent)))
    assert failure.after < 5
    assert failure.message.startswith(
        ("rank 2 on node2 was killed by SIGKILL", "rank 3 on node2 was killed by SIGKILL")
    )
    assert warm("who").ok


def test_a_rank_is_killed_before_it_knows_its_rank(warm):
    # Beside it one that ignores signals, for which the elastic agent would wait half a minute.
    agent = warm.session.pids["node1"]
    strike = later(
        lambda: len(sleeping_ranks(agent)) == 2, lambda: os.kill(max(sleeping_ranks(agent)), signal.SIGKILL), after=0.0
    )
    failure = warm.fails("misbehave", "hang", "--who", "0", "--deaf", "0", hosts="node1:2", at="bare", others="sleep")
    strike.join(5)
    assert "rank 1 on node1 was killed by SIGKILL" in failure.message.splitlines()[0]
    assert failure.after < 5


def test_an_agent_is_killed(warm):
    failure = fail_by(warm, lambda agent: agent)
    assert failure.message.startswith("node2 was lost: its agent ended with status -9")
    assert "Traceback" not in failure.message
    warm.session.assert_idle()
    survivor = warm.session.pids
    assert set(survivor) == {"node1"}
    assert warm("who").ok
    assert warm.session.pids["node1"] == survivor["node1"]


def test_agents_are_killed_while_ranks_talk_and_while_idle(warm):
    agent = warm.session.pids["node1"]
    later(lambda: len(sleeping_ranks(agent)) == 2, lambda: os.kill(agent, signal.SIGKILL))
    failure = warm.fails("misbehave", "hang", "--who", "3")
    # The others fail as well, for want of their peers, and are not to blame.
    assert failure.message.startswith("node1 was lost: its agent ended with status -9")
    warm.session.assert_idle()
    # An idle agent that is killed is missed as well.
    os.kill(warm.session.pids["node2"], signal.SIGKILL)
    wait_until(lambda: not warm.session.pids, 3)
    assert warm("who").ok


def test_a_forkserver_is_killed(warm):
    def forkserver(agent: int) -> int:
        return next(
            process.pid for process in psutil.Process(agent).children() if "forkserver" in " ".join(process.cmdline())
        )

    failure = fail_by(warm, forkserver)
    assert "on node2" in failure.message.splitlines()[0]
    assert "Traceback" not in failure.message
    first, second = warm("who"), warm("who")
    assert first.ok and second.ok
    # The server that forks ranks was started again once, so the second run was warm.
    assert second.seconds < 5


def test_a_session_fails_at_once_and_closes_without_a_trace(fresh, temporary):
    fresh("hello", hosts="node1:1,node2:1")
    # To log its first failure torch would import for five seconds.
    assert fresh.fails("misbehave", "raise", hosts="node1:1,node2:1").after < 3.0
    agents = fresh.session.pids.values()
    assert len(list(temporary.glob("distlab-*"))) == 2
    started = time.monotonic()
    fresh.session.close()
    assert time.monotonic() - started < 2.0
    assert not any(psutil.pid_exists(pid) for pid in agents)
    assert not [*temporary.glob("distlab-*"), *temporary.glob("pymp-*")]
