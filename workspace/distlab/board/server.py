"""TensorBoard as a child of this process, which keeps its files up to date."""

import errno
import os
import resource
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path

from distlab.board.mirror import Mirror
from distlab.child import interrupted_by_signals, serve_child
from distlab.parent import end_with_parent
from distlab.ports import PortError, free_port
from distlab.runs import runs_root

PORT = 6006
RELOAD_SECONDS = 5
LOOK_SECONDS = 1.0
START_LOOK_SECONDS = 0.2
# With many runs a look takes longer, so we look less often: at most this share of a core.
LOOK_SHARE = 0.02


def require_port(port: int, bind: str) -> int:
    """The port, or one that is free for 0.

    Raises:
        PortError: nobody can listen there; the message says why.
    """
    try:
        return free_port(bind, port, others=False)
    except PortError as error:
        if error.errno == errno.EINVAL:
            raise
        raise PortError(
            error.errno,
            f"TensorBoard cannot listen on {bind}, port {port}: {error}. Give another with --port or --bind",
        ) from None


def command(mirror: Path, port: int, bind: str) -> list[str]:
    """TensorBoard's command line."""
    # -P: a file random.py in the current folder must not be imported in place of Python's own.
    return [
        *(sys.executable, "-P", "-m", "tensorboard.main"),
        f"--logdir={mirror}",
        f"--host={bind}",
        f"--port={port}",
        f"--reload_interval={RELOAD_SECONDS}",
        # The data server, where there is one for this machine: Python takes 18 s to read 800 ranks.
        "--load_fast=auto",
    ]


def _environment() -> dict[str, str]:
    # gRPC would look for the data server of this machine through the network's proxy.
    return {name: value for name, value in os.environ.items() if not name.lower().endswith("_proxy")}


def _start(mirror: Path, port: int, bind: str, log: Path) -> subprocess.Popen[bytes]:
    parent = os.getpid()

    def begin() -> None:
        end_with_parent(signal.SIGTERM, parent)
        # The data server keeps the file of every rank open and fails at the limit, which is often 1024.
        most = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))

    with log.open("w") as out:
        return subprocess.Popen(
            command(mirror, port, bind),
            env=_environment(),
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=out,
            # Ctrl-C must reach only us; we end TensorBoard.
            start_new_session=True,
            preexec_fn=begin,
        )


def _answers(host: str, port: int) -> bool:
    try:
        with socket.create_connection((host, port), timeout=1):
            return True
    except OSError:
        return False


def _keeper(mirror: Mirror, port: int, bind: str) -> Callable[[subprocess.Popen[bytes]], float]:
    """What keeps the mirror up to date, says where TensorBoard is once it answers, and when to look next."""
    host = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(bind, bind)
    said = False

    def look(_: subprocess.Popen[bytes]) -> float:
        nonlocal said
        began = time.thread_time()
        mirror.look()
        took = time.thread_time() - began
        if not said and _answers(host, port):
            said = True
            place = f"[{host}]" if ":" in host else host
            print(f"\nOpen this page:\n\n    http://{place}:{port}/\n\nCtrl-C here stops it.", flush=True)
        return min(max(LOOK_SECONDS, took / LOOK_SHARE), RELOAD_SECONDS) if said else START_LOOK_SECONDS

    return look


def serve(port: int = PORT, bind: str = "127.0.0.1", folder: Path | None = None) -> int:
    """Run TensorBoard over the runs until it ends, Ctrl-C or SIGTERM; prints the URL once it answers.

    TensorBoard asks for no password: on another address than this machine's own, whoever reaches the
    port sees the runs.

    Args:
        port: 0 lets the system choose.
        folder: where to mirror to, instead of a temporary folder.

    Returns:
        TensorBoard's exit status; 0 if it was ended from here.

    Raises:
        PortError: nobody can listen there; the message says why.
        MirrorError: the mirror cannot be written.
    """
    port = require_port(port, bind)
    place = nullcontext(folder) if folder else tempfile.TemporaryDirectory(prefix="distlab-board-")
    # Before the folder is made, so that a signal finds somebody who removes it.
    with interrupted_by_signals(), place as mirror:
        log = Path(mirror, "tensorboard.log")
        log.parent.mkdir(parents=True, exist_ok=True)
        keeper = _keeper(Mirror(runs_root(), Path(mirror)), port, bind)
        status = serve_child(lambda: _start(Path(mirror), port, bind, log), keeper, "TensorBoard")
        if status is None:
            return 0
        said = "\n".join(log.read_text(errors="replace").splitlines()[-10:])
        print(f"distlab board: TensorBoard ended with status {status}:\n{said}", file=sys.stderr)
        return status if status >= 0 else 128 - status
