"""Two hosts with names and networks of their own on one machine, made of kernel namespaces."""

import os
import subprocess
import time
from pathlib import Path

import pytest

ADDRESSES = {"node1": "10.77.123.1", "node2": "10.77.123.2"}
# Two names, so that no host can be right by accident.
LINKS = {"node1": "lab-first", "node2": "lab-second"}


def _call(*words: str) -> None:
    done = subprocess.run(words, capture_output=True, text=True, timeout=20)
    assert done.returncode == 0, f"{' '.join(words)}: {done.stderr}"


def _hosts_file(folder: Path, name: str) -> Path:
    """As Debian's installer writes it: a host's own name is 127.0.1.1 to itself."""
    other = next(one for one in ADDRESSES if one != name)
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
    until = time.monotonic() + 10
    while not ready.exists():
        if holder.poll() is not None:
            pytest.skip(f"no namespaces of its own here: {holder.stderr.read().strip()}")
        assert time.monotonic() < until
        time.sleep(0.02)
    return holder


def enter(holder: subprocess.Popen) -> tuple[str, ...]:
    """The words before a command that is to run on that host."""
    return ("nsenter", "--target", str(holder.pid), "--net", "--uts", "--mount")


def start(folder: Path) -> dict[str, subprocess.Popen]:
    """Two hosts joined by a cable; kill the processes and they are gone, network and all."""
    if os.geteuid():
        pytest.skip("hosts with networks of their own need root")
    holders = {name: _start(folder, name) for name in ADDRESSES}
    ends = [word for name in ADDRESSES for word in (LINKS[name], holders[name])]
    first, one, second, two = ends
    _call("ip", "link", "add", first, "netns", str(one.pid), "type", "veth", "peer", second, "netns", str(two.pid))
    for name, holder in holders.items():
        _call(*enter(holder), "ip", "address", "add", f"{ADDRESSES[name]}/24", "dev", LINKS[name])
        _call(*enter(holder), "ip", "link", "set", LINKS[name], "up")
    return holders
