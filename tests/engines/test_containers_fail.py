"""Nodes that stop or lose their network: who is named, how soon, and that the next run works."""

import os
import threading
import time

import pytest
from containers import Project, docker, left_of
from until import wait_until

pytestmark = pytest.mark.timeout(240)

LONG = ("--epochs", "50")
NAMED_WITHIN = 15


def train_until(project, trouble) -> tuple[dict, float]:
    """A long training from node1 that `trouble` ends: its JSON line and seconds from trouble to end."""
    answer = {}
    thread = threading.Thread(target=lambda: answer.update(project.train("node1", *LONG)))
    known = set(project.workspace.glob("runs/*/metrics"))
    thread.start()

    def trains() -> bool:
        # Ranks of node2 report to the shared folder as soon as they train.
        assert thread.is_alive(), answer
        new = set(project.workspace.glob("runs/*/metrics")) - known
        return any((metrics / "rank2.jsonl").exists() for metrics in new)

    wait_until(trains, 90, lambda: answer)
    time.sleep(2)
    began = time.monotonic()
    trouble()
    thread.join(90)
    assert not thread.is_alive()
    return answer, time.monotonic() - began


def ranks_on(project, node: str) -> list[str]:
    """Agents, and what they fork ranks from, on a node."""
    running = project.run(node, "ps", "-e", "-o", "args").stdout.splitlines()
    return [line for line in running if "distlab.agent" in line or "forkserver" in line]


def assert_next_run_works(project) -> None:
    result = project.train("node1", "--epochs", "1", "--limit", "2000")
    assert result["ok"], result["error"]
    assert [end["host"] for end in result["ranks"]] == ["node1", "node1", "node2", "node2"]


def test_node2_is_stopped_in_mid_training(project):
    try:
        answer, seconds = train_until(project, lambda: project.compose("stop", "-t", "5", "node2"))
        assert not answer["ok"]
        assert answer["error"].startswith("node2 was lost"), answer["error"]
        assert seconds < NAMED_WITHIN
        assert not ranks_on(project, "node1")
        # While it is down, who is missing is said at once, and node1's own page is well.
        gone = project.run("node1", "distlab", "run", "env_report", check=False)
        assert "node2 does not resolve: is its container up? `docker compose ps`" in gone.stderr
        assert project.inspect("node1")["State"]["Health"]["Status"] == "healthy"
    finally:
        project.compose("start", "node2")
        project.wait_healthy("node2")
    assert_next_run_works(project)


def test_the_network_of_node2_is_cut_in_mid_training(project):
    network, container = f"{project.name}_backend", project.container("node2")
    answer, seconds = train_until(project, lambda: docker("network", "disconnect", network, container))
    try:
        assert not answer["ok"]
        assert answer["error"].startswith("node2 was lost"), answer["error"]
        assert seconds < NAMED_WITHIN
        assert not ranks_on(project, "node1")
    finally:
        docker("network", "connect", "--alias", "node2", network, container)
    # Behind the cut, too, the ranks end by themselves.
    wait_until(lambda: not ranks_on(project, "node2"), 20, lambda: ranks_on(project, "node2"))
    # sshd was bound to an address that is gone, and follows the new one by itself.
    wait_until(
        lambda: project.run("node1", "ssh", "node2", "true", check=False).returncode == 0,
        10,
        lambda: project.compose("logs", "--tail", "20", "node2").stdout,
    )
    assert_next_run_works(project)


def test_down_leaves_nothing(image, tmp_path):
    room = Project(f"distlab-test-down-{os.getpid()}", tmp_path, WORKSHOP_TOKEN="chosen-by-hand")
    try:
        room.up()
        assert room.token("node1") == "chosen-by-hand"
        pids = [room.inspect(node)["State"]["Pid"] for node in ("node1", "node2")]
        assert len(left_of(room.name)) == 4
    finally:
        room.down()
    assert left_of(room.name) == []
    assert not [pid for pid in pids if os.path.exists(f"/proc/{pid}")]
