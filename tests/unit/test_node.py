"""What a container does before anybody trains: keys made once, sshd's settings, services kept up."""

import os
import socket
import stat
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace

import needs
import pytest
from distlab.doctor.checks import check_workspace
from distlab.hosts import HostsError, find, nodes, parse
from distlab.node import keys, serve, sshd
from distlab.node.serve import Kept
from distlab.runs import WORKSPACE, runs_root

# -- keys ------------------------------------------------------------------------------------------


def test_two_nodes_that_start_at_once_share_one_set_of_keys(tmp_path):
    needs.programs("ssh-keygen")
    start = threading.Barrier(4)

    def node(_: int) -> tuple:
        start.wait()
        folder = keys.prepare(tmp_path)
        return folder, *((folder / name).read_text() for name in ("user_key", "host_key", "token"))

    with ThreadPoolExecutor(4) as pool:
        assert len(set(pool.map(node, range(4)))) == 1
    # Whoever came second cleared up.
    assert [path.name for path in tmp_path.iterdir()] == [f"node-{os.getuid()}"]


def test_only_the_user_reads_the_keys(tmp_path):
    needs.programs("ssh-keygen")
    folder = keys.prepare(tmp_path)
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    for name in ("user_key", "host_key", "token"):
        assert stat.S_IMODE((folder / name).stat().st_mode) == 0o600, name
    assert (folder / "known_hosts").read_text().startswith("[node1]:2222,[node2]:2222 ssh-ed25519 ")
    assert len((folder / "token").read_text()) >= 24


def test_a_shared_folder_that_cannot_be_used_says_what_to_do(tmp_path):
    with pytest.raises(keys.SharedError) as caught:
        keys.prepare(tmp_path / "missing")
    assert str(tmp_path / "missing") in caught.value.strerror
    assert "docker compose down -v" in caught.value.strerror


# -- sshd ------------------------------------------------------------------------------------------


def test_sshd_takes_the_settings_and_passes_on_what_ranks_need(tmp_path):
    needs.programs(needs.SSHD, "ssh-keygen")
    folder = keys.prepare(tmp_path)
    environ = {
        "PATH": "/opt/venv/bin:/bin",
        "DISTLAB_IMAGE": "1",
        "NCCL_DEBUG": "a word or two",
        "WORKSHOP_TOKEN": "secret",
        "DISTLAB_ODD": 'a "quoted" value',
    }
    config = tmp_path / "sshd_config"
    config.write_text(sshd.configuration(folder, "127.0.0.9", environ))
    if os.geteuid() == 0:
        os.makedirs("/run/sshd", mode=0o755, exist_ok=True)
    shown = subprocess.run([needs.SSHD, "-T", "-f", str(config)], capture_output=True, text=True)
    assert shown.returncode == 0, shown.stderr
    settings = dict(line.split(" ", 1) for line in shown.stdout.splitlines() if " " in line)
    passed = {line.removeprefix("setenv ") for line in shown.stdout.splitlines() if line.startswith("setenv ")}
    assert passed == {"PATH=/opt/venv/bin:/bin", "DISTLAB_IMAGE=1", "NCCL_DEBUG=a word or two"}
    assert settings["listenaddress"] == "127.0.0.9:2222"
    assert settings["authenticationmethods"] == "publickey"
    assert settings["passwordauthentication"] == settings["kbdinteractiveauthentication"] == "no"
    assert settings["allowtcpforwarding"] == "no"


def test_the_address_is_that_of_the_network(monkeypatch):
    def address(text: str, family: int = socket.AF_INET) -> object:
        return SimpleNamespace(family=family, address=text)

    seen = {"lo": [address("127.0.0.1")], "eth0": [address("fe80::1", socket.AF_INET6), address("172.20.0.3")]}
    monkeypatch.setattr("psutil.net_if_addrs", lambda: seen)
    assert sshd.own_address() == "172.20.0.3"
    del seen["eth0"]
    assert sshd.own_address() is None


def test_a_workspace_in_a_read_only_image_is_noticed(monkeypatch):
    monkeypatch.setattr("os.access", lambda *_: False)
    monkeypatch.setattr("os.statvfs", lambda _: SimpleNamespace(f_flag=os.ST_RDONLY))
    found = check_workspace()
    assert (found.state, found.remedy) == ("note", "bind a copy of your own: apptainer run-help IMAGE says how")


# -- services --------------------------------------------------------------------------------------


def sleeper(_: object) -> subprocess.Popen:
    return subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"])


def test_a_service_that_ended_is_started_again_after_a_pause(monkeypatch):
    now, started = [100.0], []
    monkeypatch.setattr(serve, "time", SimpleNamespace(monotonic=lambda: now[0]))
    service = Kept(lambda wanted: started.append(sleeper(wanted)) or started[-1])
    try:
        service.look()
        service.look()
        assert len(started) == 1
        started[0].kill()
        started[0].wait()
        now[0] += serve.PAUSE_SECONDS / 2
        service.look()
        assert len(started) == 1
        now[0] += serve.PAUSE_SECONDS
        service.look()
        assert len(started) == 2 and started[1].poll() is None
    finally:
        service.end()
    assert started[1].poll() is not None


def test_a_service_follows_the_address_it_was_started_for():
    addresses, started = ["10.0.0.2", "10.0.0.2", None, "10.0.0.7"], []
    service = Kept(lambda wanted: started.append((wanted, sleeper(wanted))) or started[-1][1], lambda: addresses[0])
    try:
        for running in (1, 1, 0, 1):
            service.look()
            assert sum(process.poll() is None for _, process in started) == running
            addresses.pop(0)
        assert [wanted for wanted, _ in started] == ["10.0.0.2", "10.0.0.7"]
    finally:
        service.end()


# -- where a container finds itself ------------------------------------------------------------------


@pytest.fixture
def container(monkeypatch):
    """Be in a container of the image; its name is what the test says."""
    for name in ("DISTLAB_HOSTS", "DISTLAB_TRANSPORT", "DISTLAB_HOSTFILE", "SLURM_JOB_NODELIST"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("DISTLAB_IMAGE", "1")
    monkeypatch.setattr(nodes, "machine_cores", lambda: 8)

    def named(name: str, known: dict[str, str]) -> None:
        def resolve(wanted: str) -> str:
            if wanted not in known:
                raise OSError("unknown")
            return known[wanted]

        monkeypatch.setattr("socket.gethostname", lambda: name)
        monkeypatch.setattr("socket.gethostbyname", resolve)

    return named


def test_in_a_node_the_hosts_are_the_nodes(container):
    container("node2", {"node1": "172.20.0.2", "node2": "172.20.0.3"})
    found = find()
    assert [(host.name, host.kind, host.slots) for host in found.hosts] == [("node1", "ssh", 2), ("node2", "here", 2)]
    # Both containers see the 8 cores of one machine.
    assert [host.cores for host in found.hosts] == [4, 4]
    assert found.hosts[0].threads(2) == 2
    assert parse("node1:1,node2:1")[0].kind == "ssh"


def test_a_node_that_is_down_is_missed_and_not_pretended(container):
    container("node1", {"node1": "172.20.0.2"})
    with pytest.raises(HostsError, match="host node2 does not resolve: is its container up"):
        find()


def test_a_container_alone_pretends_and_so_does_who_asks_for_it(container, monkeypatch):
    container("3f2a9c", {})
    assert {host.kind for host in find().hosts} == {"simulated"}
    container("node1", {"node1": "172.20.0.2", "node2": "172.20.0.3"})
    monkeypatch.setenv("DISTLAB_TRANSPORT", "simulated")
    assert {host.kind for host in find().hosts} == {"simulated"}
    assert find().source == "simulated on this machine"
    monkeypatch.delenv("DISTLAB_TRANSPORT")
    monkeypatch.delenv("DISTLAB_IMAGE")
    assert {host.kind for host in find().hosts} == {"simulated"}


def test_runs_go_where_one_may_write(monkeypatch, tmp_path):
    monkeypatch.delenv("DISTLAB_RUNS")
    monkeypatch.setenv("DISTLAB_SHARED", str(tmp_path))
    assert runs_root() == WORKSPACE / "runs"
    monkeypatch.setattr("os.access", lambda *_: False)
    assert runs_root() == tmp_path / "runs"
    monkeypatch.delenv("DISTLAB_SHARED")
    assert runs_root() == WORKSPACE / "runs"


@pytest.mark.parametrize(
    ("image", "owner", "remedy"),
    [
        ("1", 1234, "on the host, write WORKSHOP_UID=1234 and WORKSHOP_GID=1235 to .env and start anew"),
        ("1", 0, "on the host, start with make up, which makes a copy that may be written"),
        ("", 1234, "give it to yourself with chown, or work in a copy"),
    ],
)
def test_a_workspace_of_somebody_else_is_noticed(monkeypatch, image, owner, remedy):
    assert check_workspace().state == "fine"
    whose = type("Stat", (), {"st_uid": owner, "st_gid": owner and 1235})
    monkeypatch.setenv("DISTLAB_IMAGE", image)
    monkeypatch.setattr("os.access", lambda *_: False)
    monkeypatch.setattr(type(WORKSPACE), "stat", lambda self, **_: whose)
    found = check_workspace()
    assert (found.state, found.remedy) == ("note", remedy)
    assert f"belongs to {owner}:" in found.text
