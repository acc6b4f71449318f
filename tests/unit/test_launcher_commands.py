"""The launchers' files: the commands for hosts of their own, and that nothing else knows a launcher's library."""

import os
import shlex
import sys
from pathlib import Path

import distlab
import pytest
from distlab.hosts.interface import leading_to, network_of
from distlab.launchers import LAUNCHERS, RUNS_BY, Start

PACKAGE = Path(distlab.__file__).parent
# Its lesson and that one's script, its launcher and its wheel.
OF_HOROVOD = ("lessons/horovod/", "scripts/horovod_ddp.py", "launchers/horovodrun.py", "horovod_wheel/")
# Where it is collected.
OF_HOROVOD += ("launchers/__init__.py",)


def test_nothing_else_knows_horovod():
    naming = {
        path.relative_to(PACKAGE).as_posix() for path in PACKAGE.rglob("*.py") if "horovod" in path.read_text().lower()
    }
    assert "launchers/horovodrun.py" in naming
    assert [path for path in naming if not path.startswith(OF_HOROVOD)] == []


def test_each_launcher_says_rank_and_world_and_some_start_ranks():
    assert all({"rank", "world_size"} <= set(launcher.variables) for launcher in LAUNCHERS.values())
    assert RUNS_BY == ("torchrun", "horovodrun", "mpirun", "horovodrun-mpi")


@pytest.fixture
def start() -> Start:
    """Two hosts, of which the other one is found through loopback."""
    return Start(["python", "a b.py"], [("node1", 1), ("node2", 2)], ["127.0.0.9"], 7.9, f"{Path(sys.prefix)}/bin/")


def test_mpirun_on_two_hosts(start):
    words = LAUNCHERS["mpirun"].command(start)
    network = network_of(leading_to(["127.0.0.9"]))
    assert words[:5] == [f"{sys.prefix}/bin/mpirun", "-n", "3", "-H", "node1:1,node2:2"]
    assert ("--allow-run-as-root" in words) == (os.geteuid() == 0)
    assert words[words.index("--prefix") + 1] == sys.prefix and "isolated" not in words
    assert words[words.index("btl_tcp_if_include") + 1] == words[words.index("oob_tcp_if_include") + 1] == network
    assert words[-2:] == ["python", "a b.py"]


@pytest.mark.parametrize(("launcher", "over"), [("horovodrun", "--gloo"), ("horovodrun-mpi", "--mpi")])
def test_horovodrun_on_two_hosts(start, launcher, over):
    words = LAUNCHERS[launcher].command(start)
    assert words[:6] == [f"{sys.prefix}/bin/horovodrun", over, "-np", "3", "-H", "node1:1,node2:2"]
    assert words[words.index("--network-interfaces") + 1] == leading_to(["127.0.0.9"])
    assert words[words.index("--start-timeout") + 1] == "7"
    settings = [word.partition("=")[2] for word in words if word.startswith("--mpi-args=")]
    assert [shlex.split(text)[:2] for text in settings] == [["--prefix", sys.prefix]] * (over == "--mpi")


@pytest.mark.parametrize("launcher", [name for name in RUNS_BY if LAUNCHERS[name].command])
def test_simulated_hosts_are_one_machine_and_need_no_ssh(launcher):
    words = LAUNCHERS[launcher].command(Start(["python"], [("node1", 1), ("node2", 2)], None, 60.0))
    assert words[words.index("-H") + 1] == "localhost:3"
    assert ("plm isolated" in " ".join(words)) == (launcher != "horovodrun")
