"""Hosts whose own name is 127.0.1.1 to themselves still meet: the interface that leads to the peer is used."""

import json
import os
import subprocess
import sys
from pathlib import Path

import leftovers
import namespaces
import needs
import pytest
import sshd
from distlab.hosts.interface import interface_of, leading_to, network_of, socket_variables, source_address
from distlab.lessons.horovod.experiments import elastic as horovod_elastic
from running import SCRIPTS, marked_environment

pytestmark = pytest.mark.timeout(200)

# Runs a script once for each set of options; prints what ranks said and recorded, or why it failed.
DRIVER = """
import json, sys
from distlab import RunFailed, run
from distlab.launch import Session
script, arguments, asked = sys.argv[1], json.loads(sys.argv[2]), json.loads(sys.argv[3])
with Session() as session:
    def said(options):
        try:
            result = run(script, *arguments, session=session, quiet=True, **options)
            return {"lines": sorted(text for _, text in result.output), "records": result.metrics}
        except RunFailed as failure:
            return str(failure)
    print(json.dumps([said(options) for options in asked]))
"""


@pytest.fixture
def two_networks(tmp_path):
    """Hosts node1 and node2, an sshd on node2."""
    needs.programs(needs.SSHD, "ssh", "ip", "nsenter", "unshare")
    holders = namespaces.start(tmp_path)
    try:
        sshd.write_keys(tmp_path)
        sshd.start(tmp_path, [namespaces.ADDRESSES["node2"]], 22, inside=namespaces.enter(holders["node2"]))
        yield holders
    finally:
        if (tmp_path / "sshd.pid").exists():
            os.kill(int((tmp_path / "sshd.pid").read_text()), 15)
        for holder in holders.values():
            holder.kill()
            holder.wait()


@pytest.fixture
def from_node1(two_networks, mark, tmp_path):
    """Runs a script once for each set of options of `run`, started on node1."""
    environ = marked_environment(mark) | {
        "DISTLAB_TRANSPORT": "ssh",
        "DISTLAB_SSH": sshd.client_words(tmp_path, 22),
    }

    def run(script: Path, arguments: list[str], *asked: dict) -> list[dict | str]:
        command = [*namespaces.enter(two_networks["node1"]), sys.executable, "-c", DRIVER]
        words = [str(script), json.dumps(arguments), json.dumps(asked)]
        driver = subprocess.run([*command, *words], env=environ, capture_output=True, text=True, timeout=150)
        assert driver.returncode == 0, driver.stderr
        return json.loads(driver.stdout)

    yield run
    leftovers.assert_nothing_left(mark, 5.0)


def test_two_networks(from_node1):
    plain = {"hosts": "node1:1,node2:2", "timeout": 60}
    wrong = plain | {"env": {"GLOO_SOCKET_IFNAME": "lo", "DISTLAB_COLLECTIVE_TIMEOUT": "10"}}
    first, second, misled = from_node1(SCRIPTS / "who.py", [], plain, plain, wrong)
    for found in (first, second):
        seen = sorted(
            (json.loads(line) for line in found["lines"] if line.startswith("{")), key=lambda rank: rank["rank"]
        )
        assert [(rank["host"], rank["rank"], rank["local_rank"]) for rank in seen] == [
            ("node1", 0, 0),
            ("node2", 1, 0),
            ("node2", 2, 1),
        ]
        assert [rank["interface"] for rank in seen] == ["lab-first", "lab-second", "lab-second"]
        assert [rank["sum"] for rank in seen] == [7.0] * 3
    # What a person sets is kept, and over loopback the hosts do not meet.
    assert isinstance(misled, str)
    assert "cannot connect to the other ranks: do their hosts meet on the interface in GLOO_SOCKET_IFNAME?" in misled


def test_horovod_over_two_networks(from_node1):
    needs.horovod()
    asked = [
        {"hosts": "node1:1,node2:1", "launcher": launcher, "timeout": 40}
        for launcher in ("mpirun", "horovodrun", "horovodrun-mpi")
    ]
    found = from_node1(SCRIPTS / "add_with_horovod.py", ["all", "0"], *asked)
    for options, run in zip(asked, found, strict=True):
        backend = "gloo" if options["launcher"] == "horovodrun" else "mpi"
        assert isinstance(run, dict), run
        assert [line for line in run["lines"] if line.startswith("sum")] == [
            f"sum [3.0, 3.0, 3.0] node1 0 {backend}",
            f"sum [3.0, 3.0, 3.0] node2 0 {backend}",
        ]


def test_elastic_training_over_two_networks(from_node1):
    needs.horovod()
    asked = {"hosts": "node1:1", "timeout": 90, "env": {"DISTLAB_HOSTS": "node1:1,node2:2"}}
    (found,) = from_node1(Path(horovod_elastic.__file__), [], asked)
    assert isinstance(found, dict), found
    what = [(record["what"], record["hvd_host"]) for record in found["records"] if record["event"] == "elastic"]
    assert sorted(host for how, host in what if how == "started") == ["node1", "node2", "node2"]
    assert [host for how, host in what if how == "killed"] == ["node2"]
    assert [host for how, host in what if how == "ended"] == ["node1"]


def test_the_interface_of_an_address():
    assert source_address("127.0.0.1") == "127.0.0.1"
    assert interface_of("127.0.0.1") == "lo"
    assert interface_of("127.0.1.1") == "lo"
    assert interface_of("203.0.113.7") is None
    assert source_address("no.such.host.invalid") is None
    assert source_address("two..dots") is None


def test_the_network_of_an_interface():
    assert network_of("lo") == "127.0.0.0/8"
    assert network_of("no-such-interface") is None


def test_the_first_peer_that_can_be_reached_decides():
    assert leading_to([]) == "lo"
    assert leading_to(["no.such.host.invalid", "127.0.0.1"]) == "lo"
    assert leading_to(["no.such.host.invalid"]) is None


def test_what_is_set_already_is_left_alone():
    both = {"GLOO_SOCKET_IFNAME": "lo", "NCCL_SOCKET_IFNAME": "lo"}
    assert socket_variables([], {}) == both
    assert socket_variables([], {"NCCL_SOCKET_IFNAME": "ib0"}) == {"GLOO_SOCKET_IFNAME": "lo"}
    assert socket_variables(["no.such.host.invalid"], {}) == {}
