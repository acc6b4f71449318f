"""Starts what a node offers and keeps it up until JupyterLab ends."""

import os
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from distlab import lab
from distlab.child import end_child
from distlab.hosts.nodes import in_node
from distlab.node import sshd
from distlab.node.keys import PORT, prepare
from distlab.runs import workspace_trouble

LOOK_SECONDS = 1.0
STOP_SECONDS = 2.0
# Between two starts of a service that keeps ending: starting it all the time would take the ranks' cores.
PAUSE_SECONDS = 10.0
ANYWHERE = "0.0.0.0"


class Kept:
    """A process that is started again when it ends, or when what it was started for has changed."""

    def __init__(
        self, start: Callable[[Any], subprocess.Popen[bytes]], wanted: Callable[[], object] = lambda: True
    ) -> None:
        self._start, self._wanted = start, wanted
        self._process: subprocess.Popen[bytes] | None = None
        self._started_for: object = None
        self._not_before = 0.0

    def look(self) -> None:
        """Start it if it should run and does not; between two starts lie at least PAUSE_SECONDS."""
        wanted = self._wanted()
        changed = wanted != self._started_for
        if self._process and (changed or self._process.poll() is not None):
            self.end()
        if wanted and not self._process and (changed or time.monotonic() >= self._not_before):
            self._started_for, self._not_before = wanted, time.monotonic() + PAUSE_SECONDS
            self._process = self._start(wanted)

    def end(self) -> None:
        """Stop it."""
        if self._process:
            end_child(self._process, STOP_SECONDS)
        self._process = None


def _keep(services: list[Kept], stop: threading.Event) -> None:
    while not stop.wait(LOOK_SECONDS):
        for service in services:
            try:
                service.look()
            except OSError as error:
                print(f"distlab node: {error}", file=sys.stderr, flush=True)


def _board(_: object) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-m", "distlab.cli", "board", "--bind", ANYWHERE]
    # Its output is dropped: it names the container's own address, where no browser reaches it.
    return subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL)


def serve() -> int:
    """Be a node until JupyterLab ends: its status.

    Raises:
        SharedError: the folder that both nodes share cannot be used.
    """
    if os.geteuid() == 0:
        print("distlab node: run the container as a normal user, such as --user 1000:1000", file=sys.stderr)
        return 2
    if trouble := workspace_trouble():
        print(f"notebooks and exercises cannot be saved: {'; '.join(trouble)}", flush=True)
    services = [Kept(_board)]
    token = os.environ.get("WORKSHOP_TOKEN")
    with tempfile.TemporaryDirectory(prefix="node-") as work:
        if in_node():
            keys = prepare(Path(os.environ.get("DISTLAB_SHARED", "/shared")))
            # The token of both nodes, which stays the same when a node is restarted.
            token = token or (keys / "token").read_text()
            ssh = Kept(lambda address: sshd.start(keys, address, Path(work)), sshd.own_address)
            ssh.look()
            services.insert(0, ssh)
            print(f"{socket.gethostname()}: the other node reaches it by ssh, port {PORT}", flush=True)
        if board := os.environ.get("WORKSHOP_BOARD_URL"):
            print(f"TensorBoard will be at {board}", flush=True)
        stop = threading.Event()
        keeper = threading.Thread(target=_keep, args=(services, stop), daemon=True)
        keeper.start()
        try:
            return lab.serve(browser=False, bind=ANYWHERE, token=token)
        finally:
            stop.set()
            keeper.join(5)
            for service in services:
                service.end()
