"""What compose says of a project's nodes, in the two shapes that its versions have."""

import json

import pytest
from distlab.classroom import engine, project
from distlab.classroom.project import Node, Project, read_nodes
from distlab.classroom.settings import ClassroomError

ROW = {
    "ID": "1f0c",
    "Name": "distlab-node1-1",
    "Project": "distlab",
    "Service": "node1",
    "State": "running",
    "Health": "healthy",
    "ExitCode": 0,
    "Publishers": [{"URL": "127.0.0.1", "TargetPort": 8888, "PublishedPort": 8000, "Protocol": "tcp"}],
}
OTHER = ROW | {"ID": "2e5d", "Service": "node2", "State": "exited", "Health": "", "Status": "Exited (2) 1 second ago"}
NODES = [Node("node1", "1f0c", "running", "healthy", "running"), Node("node2", "2e5d", "exited", "", OTHER["Status"])]


def test_a_line_for_each_container():
    assert read_nodes(f"{json.dumps(ROW)}\n{json.dumps(OTHER)}\n") == NODES
    assert read_nodes("\n") == read_nodes("") == []


def test_one_list_of_them_as_before_2_21():
    assert read_nodes(json.dumps([ROW, OTHER])) == NODES
    assert read_nodes("[]\n") == []


@pytest.fixture
def said(monkeypatch):
    """What compose says at each look, the last of it for ever; nobody sleeps meanwhile."""

    def set_looks(*looks: list[dict]) -> list:
        left = list(looks)

        def ask(*words, **_):
            look = left.pop(0) if len(left) > 1 else left[0]
            out = "".join(json.dumps(row) + "\n" for row in look) if words[:2] == ("docker", "compose") else "a line\n"
            return engine.subprocess.CompletedProcess(words, 0, out, "")

        monkeypatch.setattr(engine, "ask", ask)
        return left

    monkeypatch.setattr(project, "LOOK_SECONDS", 0.001)
    return set_looks


def test_waiting_ends_when_both_are_healthy(said):
    starting = [ROW | {"Health": "starting"}, ROW | {"Service": "node2", "Health": "starting"}]
    restarting = [starting[0], starting[1] | {"State": "restarting", "Health": ""}]
    both = [ROW, ROW | {"Service": "node2"}]
    # Twice in a row it waits for its next start; a third time would be once too often.
    left = said(starting, restarting, restarting, starting, restarting, both, [])
    Project("distlab").wait()
    assert left == [[]]


@pytest.mark.parametrize(
    ("other", "status"),
    [
        ({"Health": "unhealthy", "Status": "Up 2 minutes (unhealthy)"}, "Up 2 minutes (unhealthy)"),
        ({"State": "dead", "Health": ""}, "dead"),
        ({"Service": "node3"}, "gone"),
        ({"State": "restarting", "Health": "", "Status": "Restarting (1)"}, "Restarting (1)"),
    ],
)
def test_waiting_ends_when_a_node_is_lost(said, other, status):
    # Whoever waited longer would see them healthy.
    looks = 3 if other.get("State") == "restarting" else 1
    said(*[[ROW, ROW | {"Service": "node2"} | other]] * looks, [ROW, ROW | {"Service": "node2"}])
    with pytest.raises(ClassroomError, match="distlab did not become healthy") as caught:
        Project("distlab").wait()
    first = caught.value.text.splitlines()
    log = [] if status == "gone" else ["    a line"]
    assert first == [f"distlab: node2 is {status}; it said last:", *log, "distlab did not become healthy"]


def test_waiting_ends_when_the_time_is_up(said):
    said([ROW, ROW | {"Service": "node2", "Health": "starting", "Status": "Up (health: starting)"}])
    with pytest.raises(ClassroomError, match=r"node2 is Up \(health: starting\)"):
        Project("distlab").wait(0.01)


def test_compose_that_gives_no_answer(monkeypatch):
    silent = engine.subprocess.CompletedProcess((), 1, "", "noise\nno such host\n")
    monkeypatch.setattr(engine, "ask", lambda *_, **__: silent)
    with pytest.raises(ClassroomError, match="^distlab cannot be looked at: no such host$"):
        Project("distlab").nodes()
