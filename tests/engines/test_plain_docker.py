"""The instructor's guide's commands for plain Docker, run as they are written."""

import json
import re
import shlex

import pytest
from containers import ROOT, docker
from distlab.classroom.project import NODES
from distlab.ports import free_ports
from distlab.waiting import wait_until

pytestmark = pytest.mark.timeout(240)


def documented() -> list[list[str]]:
    """The commands of the guide's block."""
    text = (ROOT / "docs" / "instructor-guide.md").read_text()
    block = re.search(r"test_plain_docker\.py.*?```sh\n(.*?)```", text, re.DOTALL)[1]
    return [shlex.split(line) for line in block.splitlines()]


@pytest.fixture
def two_nodes(image):
    """Runs the commands, with ports that are free on this machine, and removes what they made."""
    build, network, *runs, urls = documented()
    assert build == ["docker", "build", "-t", image, "."]
    taken = docker("ps", "-a", "--format", "{{.Names}}").stdout.split()
    if set(NODES) & set(taken):
        pytest.skip("containers of the names node1 and node2 are here already")
    try:
        docker(*network[1:])
        for words, port in zip(runs, free_ports(2), strict=True):
            docker(*(re.sub(r"^127\.0\.0\.1:[89]000:", f"127.0.0.1:{port}:", word) for word in words[1:]))
        yield urls
    finally:
        docker("rm", "-f", *NODES, check=False)
        docker("network", "rm", "backend", check=False)
        docker("volume", "rm", "distlab-shared", check=False)


def test_two_docker_runs_train_together(two_nodes):
    for node in NODES:
        ask = ("inspect", "-f", "{{.State.Health.Status}}", node)
        healthy = wait_until(lambda ask=ask: docker(*ask).stdout.strip() == "healthy", 60, every=0.3)
        assert healthy, docker("logs", node).stdout
    assert "token=" in docker(*two_nodes[1:]).stdout
    for node in NODES:
        said = docker("exec", node, "distlab", "run", "ddp", "--json", "--", "--epochs", "1", "--limit", "2000")
        result = json.loads(said.stdout.splitlines()[-1])
        assert [(end["host"], end["how"]) for end in result["ranks"]] == [
            *[("node1", "completed")] * 2,
            *[("node2", "completed")] * 2,
        ]
