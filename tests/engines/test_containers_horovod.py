"""Horovod and MPI across two containers: real hosts, real ssh, and the wheel that the image was built with."""

import json
import shlex

import pytest
from distlab.classroom.project import NODES
from until import wait_until

pytestmark = pytest.mark.timeout(240)

LAUNCHERS = ("mpirun", "horovodrun", "horovodrun-mpi")
WORDS = ("--limit", "512", "--model", "mlp", "--no-checkpoint")


def start(project, launcher: str, script: str, *words: str, node: str = "node1", check: bool = True) -> dict:
    """`distlab run` from a node, with the JSON line that it ends with."""
    command = ["distlab", "run", script, "--json", "--launcher", launcher, "--timeout", "120", "--", *words]
    said = project.run(node, *command, timeout=150, check=False)
    assert said.stdout.strip(), said.stderr
    result = json.loads(said.stdout.strip().splitlines()[-1])
    assert not check or result["ok"], f"{result['error']}\n{said.stderr[-2000:]}"
    return result


def last(result: dict, event: str) -> list[dict]:
    """Each rank's last record of an event, in rank order."""
    found = {rank: [record for record in own if record["event"] == event] for rank, own in result["metrics"].items()}
    return [own[-1] for _, own in sorted(found.items()) if own]


def test_every_lesson_can_run_and_the_image_has_horovod_with_everything(project):
    said = json.loads(project.run("node1", "distlab", "doctor", "--quick", "--json").stdout)
    assert said["ok"], said
    assert "Horovod 0.28.1 with gloo, MPI and NCCL" in [check["text"] for check in said["checks"]]


@pytest.mark.parametrize("launcher", LAUNCHERS)
def test_horovod_trains_on_both(project, launcher):
    result = start(project, launcher, "horovod_ddp", *WORDS)
    assert [(rank["host"], rank["local_rank"]) for rank in result["ranks"]] == [
        ("node1", 0),
        ("node1", 1),
        ("node2", 0),
        ("node2", 1),
    ]
    ends, epochs = last(result, "end"), last(result, "epoch")
    assert sum(end["images"] for end in ends) == 512
    assert len({(epoch["loss"], epoch["val_accuracy"]) for epoch in epochs}) == 1
    assert {setup["backend"] for setup in last(result, "setup")} == {"gloo" if launcher == "horovodrun" else "mpi"}


def test_ddp_under_mpirun_as_under_torchrun(project):
    """Lab 9 of the seed, from the other node: the script is the same."""
    losses = [
        last(start(project, launcher, "ddp", *WORDS, node=node), "epoch")[0]["loss"]
        for launcher, node in (("mpirun", "node2"), ("torchrun", "node1"))
    ]
    assert losses[0] == pytest.approx(losses[1], abs=1e-4)


@pytest.mark.parametrize("launcher", LAUNCHERS)
def test_the_command_that_is_shown_can_be_typed(project, launcher):
    shown = start(project, launcher, "env_report")["command"]["node1"]
    assert "-H node1:2,node2:2" in shown
    said = project.run("node1", "sh", "-c", f"cd /workspace && {shown}", timeout=120).stdout
    assert "node2" in said and "WORLD_SIZE" in said


@pytest.mark.parametrize("launcher", ["mpirun", "horovodrun"])
def test_a_rank_of_the_other_node_fails_and_is_named(project, launcher):
    code = "import os; from distlab import process\\nwith process.group() as me:\\n    1 / (3 - me.rank)\\n"
    project.run("node1", "sh", "-c", f"printf {shlex.quote(code)} >/workspace/fails.py")
    result = start(project, launcher, "/workspace/fails.py", check=False)
    assert result["error"].startswith("rank 3 on node2 raised ZeroDivisionError")

    # Open MPI's daemon on the other node ends when it misses the first one.
    def left() -> list[str]:
        return [line for node in NODES for line in left_on(project, node)]

    wait_until(lambda: not left(), 10, left)


def left_on(project, node: str) -> list[str]:
    """Processes of launchers, and what holds their ranks' places, on a node."""
    look = "pgrep -af '[s]eat.py|[m]pirun|[h]orovodrun|[o]rted' || true"
    return project.run(node, "sh", "-c", look).stdout.splitlines()


def test_a_node_loses_a_rank_and_the_other_goes_on(project):
    result = project.train("node1", script="horovod/elastic", hosts="node1:1")
    assert result["ok"], result["error"]
    story = [record for own in result["metrics"].values() for record in own if record["event"] == "elastic"]
    killed, ended = ([record for record in story if record["what"] == what] for what in ("killed", "ended"))
    assert {record["hvd_host"] for record in killed} == {"node2"}
    assert [(record["hvd_host"], record["world_size"]) for record in ended] == [("node1", 2)] * 2
