"""Hosts whose own name is 127.0.1.1 to themselves still meet: the interface that leads to the peer is used."""

import json
import os
import subprocess
import sys

import leftovers
import namespaces
import needs
import pytest
import sshd
from distlab.hosts.interface import interface_of, leading_to, network_of, socket_variables, source_address
from running import SCRIPTS, marked_environment

pytestmark = pytest.mark.timeout(120)

DRIVER = """
import json, sys
from distlab import RunFailed, run
from distlab.launch import Session
with Session() as session:
    def who(**more):
        try:
            result = run(sys.argv[1], hosts="node1:1,node2:2", session=session, quiet=True, timeout=60, **more)
            return [json.loads(text) for _, text in sorted(result.output) if text.startswith("{")]
        except RunFailed as failure:
            return str(failure)
    print(json.dumps([who(), who(), who(env={"GLOO_SOCKET_IFNAME": "lo", "DISTLAB_COLLECTIVE_TIMEOUT": "10"})]))
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


def test_two_networks(two_networks, mark, tmp_path):
    environ = marked_environment(mark) | {
        "DISTLAB_TRANSPORT": "ssh",
        "DISTLAB_SSH": sshd.client_words(tmp_path, 22),
    }
    command = [*namespaces.enter(two_networks["node1"]), sys.executable, "-c", DRIVER, str(SCRIPTS / "who.py")]
    driver = subprocess.run(command, env=environ, capture_output=True, text=True, timeout=100)
    assert driver.returncode == 0, driver.stderr
    first, second, misled = json.loads(driver.stdout)
    for seen in (first, second):
        assert [(one["host"], one["rank"], one["local_rank"]) for one in seen] == [
            ("node1", 0, 0),
            ("node2", 1, 0),
            ("node2", 2, 1),
        ]
        assert [one["interface"] for one in seen] == ["lab-first", "lab-second", "lab-second"]
        assert [one["sum"] for one in seen] == [7.0] * 3
    # What a person sets stands; and with loopback, as without any of this, they do not meet.
    assert isinstance(misled, str)
    assert "cannot connect to the other ranks: do their hosts meet on the interface in GLOO_SOCKET_IFNAME?" in misled
    leftovers.assert_nothing_left(mark, 5.0)


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
