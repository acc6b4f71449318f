"""Drives the real Docker engine as an instructor does: compose projects of the tests' own."""

import json
import os
import re
import subprocess
import time
import urllib.error
import urllib.request
from pathlib import Path

from distlab.classroom.folder import make_copy
from distlab.classroom.seats import PORTS
from distlab.ports import free_ports
from distlab.waiting import wait_until

ROOT = Path(__file__).resolve().parents[2]
DIRECT = urllib.request.build_opener(urllib.request.ProxyHandler({}))
# Neither root nor the user that the image knows: whoever clones the repository has some id.
OWNER = 1234


def docker(*words: str, timeout: float = 120, check: bool = True, **more) -> subprocess.CompletedProcess:
    """Run the docker command; its output is in the error when it fails."""
    done = subprocess.run(["docker", *words], capture_output=True, text=True, timeout=timeout, cwd=ROOT, **more)
    assert not check or done.returncode == 0, f"docker {' '.join(words)}: {done.stdout}{done.stderr}"
    return done


def copy_workspace(folder: Path, owner: int = OWNER) -> Path:
    """A copy of the workspace that belongs to `owner` on this machine."""
    target = folder / "workspace"
    make_copy(ROOT / "workspace", target, (owner, owner))
    # pytest's temporary folders are closed to everybody else.
    for parent in target.parents[:3]:
        if parent != Path("/tmp"):
            parent.chmod(parent.stat().st_mode | 0o055)
    return target


def answer(url: str, method: str = "GET", body: object = None, timeout: float = 20) -> tuple[int, object]:
    """Status and JSON of a request that asks no proxy."""
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(url, data, {"Content-Type": "application/json"}, method=method)
    try:
        with DIRECT.open(request, timeout=timeout) as reply:
            text = reply.read()
            return reply.status, json.loads(text) if text else None
    except urllib.error.HTTPError as error:
        return error.code, None


class Project:
    """One compose project, as `docker compose up` starts it, on ports of its own."""

    def __init__(self, name: str, folder: Path, owner: int = OWNER, **settings: str) -> None:
        self.name, self.owner = name, owner
        self.workspace = copy_workspace(folder, owner)
        self.ports = dict(zip(PORTS, free_ports(len(PORTS)), strict=True))
        self.settings = {
            **{port: str(number) for port, number in self.ports.items()},
            "WORKSHOP_FOLDER": str(self.workspace),
            "WORKSHOP_UID": str(owner),
            "WORKSHOP_GID": str(owner),
            **settings,
        }

    def compose(self, *words: str, timeout: float = 120, check: bool = True) -> subprocess.CompletedProcess:
        """Run a compose command on this project."""
        env = {**os.environ, **self.settings}
        return docker("compose", "-p", self.name, *words, timeout=timeout, check=check, env=env)

    def up(self) -> float:
        """Bring both nodes up, healthy: how many seconds that took."""
        began = time.monotonic()
        self.compose("up", "-d", "--wait", "--no-build")
        return time.monotonic() - began

    def down(self) -> None:
        """Remove containers, network and volume."""
        self.compose("down", "-v", "-t", "2", "--remove-orphans", check=False)

    def run(self, node: str, *words: str, timeout: float = 120, check: bool = True) -> subprocess.CompletedProcess:
        """Run a command on a node, as in its terminal."""
        return self.compose("exec", "-T", node, *words, timeout=timeout, check=check)

    def start(self, node: str, *words: str) -> subprocess.Popen:
        """Start a command on a node and do not wait for it."""
        return subprocess.Popen(
            ["docker", "compose", "-p", self.name, "exec", "-T", node, *words],
            env={**os.environ, **self.settings},
            cwd=ROOT,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )

    def train(
        self, node: str, *words: str, script: str = "ddp", hosts: str = "node1:2,node2:2", timeout: float = 150
    ) -> dict:
        """`distlab run SCRIPT` from a node: the JSON line that it ends with, or the error in its place."""
        command = ["distlab", "run", script, "--json", "--hosts", hosts, "--", *words]
        said = self.run(node, *command, timeout=timeout, check=False)
        assert said.stdout.strip(), said.stderr
        return json.loads(said.stdout.strip().splitlines()[-1])

    def container(self, node: str) -> str:
        """A node's container id."""
        return self.compose("ps", "-q", node).stdout.strip()

    def inspect(self, node: str) -> dict:
        """What the engine says of a node."""
        return json.loads(docker("inspect", self.container(node)).stdout)[0]

    def url(self, node: str) -> str:
        """Where a node's JupyterLab is published."""
        return f"http://127.0.0.1:{self.ports[f'{node.upper()}_PORT']}"

    def board(self, node: str) -> str:
        """Where a node's TensorBoard is published."""
        return f"http://127.0.0.1:{self.ports[f'{node.upper()}_BOARD_PORT']}"

    def token(self, node: str) -> str:
        """The token in the node's log, as the instructor finds it."""
        log = self.compose("logs", "--no-color", node).stdout
        return re.findall(r"/lab/tree/Start_Here.ipynb\?token=(\S+)", log)[-1]

    def wait_healthy(self, node: str, seconds: float = 60) -> None:
        """Wait until the engine calls a node healthy."""
        healthy = wait_until(lambda: self.inspect(node)["State"]["Health"]["Status"] == "healthy", seconds, every=0.2)
        assert healthy, self.compose("logs", "--tail", "20", node).stdout


def left_of(name: str) -> list[str]:
    """Containers, networks and volumes of a compose project."""
    label = f"label=com.docker.compose.project={name}"
    found = []
    for words in (["ps", "-a", "-q"], ["network", "ls", "-q"], ["volume", "ls", "-q"]):
        found += docker(*words, "--filter", label).stdout.split()
    return found
