"""Two hosts with names and networks of their own on one machine, made of kernel namespaces."""

import os
import subprocess
from pathlib import Path

import pytest
from distlab.waiting import wait_until

ADDRESSES = {"node1": "10.77.123.1", "node2": "10.77.123.2"}
# Different names, so that a host which uses the other's fails.
LINKS = {"node1": "lab-first", "node2": "lab-second"}


def _call(*words: str) -> None:
    done = subprocess.run(words, capture_output=True, text=True, timeout=20)
    assert done.returncode == 0, f"{' '.join(words)}: {done.stderr}"


def _hosts_file(folder: Path, name: str) -> Path:
    """As Debian's installer writes it: a host's own name is 127.0.1.1 to itself."""
    other = next(host for host in ADDRESSES if host != name)
    path = folder / f"hosts-{name}"
    path.write_text(f"127.0.0.1 localhost\n127.0.1.1 {name}\n{ADDRESSES[other]} {other}\n")
    return path


def _start(folder: Path, name: str) -> subprocess.Popen:
    ready = folder / f"ready-{name}"
    script = (
        f"hostname {name} && mount --bind {_hosts_file(folder, name)} /etc/hosts && ip link set lo up "
        f"&& touch {ready} && exec sleep 600"
    )
    words = ["unshare", "--net", "--uts", "--mount", "--propagation", "private", "sh", "-c", script]
    holder = subprocess.Popen(words, stderr=subprocess.PIPE, text=True)
    assert wait_until(lambda: ready.exists() or holder.poll() is not None, 10, every=0.02)
    if not ready.exists():
        pytest.skip(f"no namespaces of its own here: {holder.stderr.read().strip()}")
    return holder


def enter(holder: subprocess.Popen) -> tuple[str, ...]:
    """The words before a command that is to run on that host."""
    return ("nsenter", "--target", str(holder.pid), "--net", "--uts", "--mount")


def start(folder: Path) -> dict[str, subprocess.Popen]:
    """Two hosts joined by a cable; kill the processes and they are gone, network and all."""
    if os.geteuid():
        pytest.skip("hosts with networks of their own need root")
    holders = {name: _start(folder, name) for name in ADDRESSES}
    (link1, pid1), (link2, pid2) = ((LINKS[name], str(holders[name].pid)) for name in ADDRESSES)
    _call("ip", "link", "add", link1, "netns", pid1, "type", "veth", "peer", link2, "netns", pid2)
    for name, holder in holders.items():
        _call(*enter(holder), "ip", "address", "add", f"{ADDRESSES[name]}/24", "dev", LINKS[name])
        _call(*enter(holder), "ip", "link", "set", LINKS[name], "up")
    return holders
