"""A clone that belongs to root, as on many a lent machine, and `docker compose up` with nothing set."""

import json
import os

import pytest
from containers import Project, copy_workspace, docker
from until import wait_until

pytestmark = pytest.mark.timeout(240)


@pytest.fixture(scope="module")
def roots(image, tmp_path_factory):
    room = Project(
        f"distlab-test-root-{os.getpid()}", tmp_path_factory.mktemp("roots"), 0, WORKSHOP_UID="", WORKSHOP_GID=""
    )
    try:
        room.up()
        yield room
    finally:
        room.down()


def test_it_says_what_cannot_be_saved_and_what_to_do(roots):
    said = roots.compose("logs", "--no-color", "node1").stdout
    assert "notebooks and exercises cannot be saved: /workspace belongs to 0:0, and this runs as 1000:1000" in said
    assert "; on the host, start with make up" in said
    doctor = json.loads(roots.run("node1", "distlab", "doctor", "--quick", "--json").stdout)
    assert {check["name"]: check["state"] for check in doctor["checks"]}["workspace"] == "note"
    assert doctor["ok"]


def test_another_owner_is_told_the_two_settings(image, tmp_path):
    workspace = copy_workspace(tmp_path, 4711)
    words = ("run", "-d", "-v", f"{workspace}:/workspace", image)
    started = docker(*words).stdout.strip()
    try:

        def said() -> str:
            return docker("logs", started).stdout

        wait_until(lambda: "cannot be saved" in said(), 30, said)
        assert "write WORKSHOP_UID=4711 and WORKSHOP_GID=4711 to .env and start anew" in said()
    finally:
        docker("rm", "-f", started)


def test_lessons_run_all_the_same(roots):
    result = roots.train("node1", "--epochs", "1", "--limit", "2000")
    assert result["ok"], result["error"]
    assert result["folder"].startswith("/shared/runs/")
    assert not (roots.workspace / "runs").exists()
