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
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path

from distlab.board.mirror import Mirror
from distlab.parent import end_with_parent
from distlab.runs import runs_root

PORT = 6006
RELOAD_SECONDS = 5
LOOK_SECONDS = 1.0
START_LOOK_SECONDS = 0.2
# With a thousand runs a look takes longer; then there are fewer, so that they stay a fiftieth of a core.
LOOK_SHARE = 0.02
STOP_SECONDS = 10
ENDING = (signal.SIGTERM, signal.SIGHUP)


def free_port(port: int, bind: str) -> int:
    """The port, or one that the system chooses for 0.

    Raises:
        OSError: nobody can listen there; the message says why.
    """
    family = socket.AF_INET6 if ":" in bind else socket.AF_INET
    try:
        with socket.create_server((bind, port), family=family) as server:
            return server.getsockname()[1]
    except OverflowError:
        raise OSError(errno.EINVAL, f"{port} is no port: give one from 1 to 65535") from None
    except OSError as error:
        # Python adds where it was, which the sentence says already.
        why = error.strerror.partition(" (while ")[0]
        raise OSError(
            error.errno, f"TensorBoard cannot listen on {bind}, port {port}: {why}. Give another with --port or --bind"
        ) from None


def command(mirror: Path, port: int, bind: str) -> list[str]:
    """TensorBoard's command line."""
    # -P: a file random.py in the folder where somebody stands must not be taken for Python's own.
    return [
        *(sys.executable, "-P", "-m", "tensorboard.main"),
        f"--logdir={mirror}",
        f"--host={bind}",
        f"--port={port}",
        f"--reload_interval={RELOAD_SECONDS}",
        # The data server, if there is one for this machine: it reads 800 ranks in no time where
        # Python takes 18 s, and idles with a quarter of the CPU time.
        "--load_fast=auto",
    ]


def _environment() -> dict[str, str]:
    # gRPC would ask the network's proxy for TensorBoard's own data server on this machine.
    return {name: value for name, value in os.environ.items() if not name.lower().endswith("_proxy")}


def _start(mirror: Path, port: int, bind: str, log: Path) -> subprocess.Popen:
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
            # A terminal's Ctrl-C is for us, who then end it.
            start_new_session=True,
            preexec_fn=begin,
        )


def _stop(child: subprocess.Popen) -> None:
    child.terminate()
    try:
        child.wait(timeout=STOP_SECONDS)
    except subprocess.TimeoutExpired:
        child.kill()
        child.wait()


@contextmanager
def _interrupted_by_signals() -> Iterator[None]:
    # A closed terminal or `kill` ends all as Ctrl-C does, unless nohup had the signal ignored.
    before = {one: signal.getsignal(one) for one in ENDING if signal.getsignal(one) != signal.SIG_IGN}
    for one in before:
        signal.signal(one, signal.default_int_handler)
    try:
        yield
    finally:
        for one, handler in before.items():
            signal.signal(one, handler)


def _answers(host: str, port: int) -> bool:
    try:
        with socket.create_connection((host, port), timeout=1):
            return True
    except OSError:
        return False


def _keep(mirror: Mirror, child: subprocess.Popen, port: int, bind: str) -> None:
    """Keep the mirror up to date as long as the child runs; say where it is once it answers."""
    host = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(bind, bind)
    said = False
    while child.poll() is None:
        began = time.thread_time()
        mirror.look()
        took = time.thread_time() - began
        if not said and _answers(host, port):
            said = True
            place = f"[{host}]" if ":" in host else host
            print(f"\nOpen this page:\n\n    http://{place}:{port}/\n\nCtrl-C here stops it.", flush=True)
        time.sleep(min(max(LOOK_SECONDS, took / LOOK_SHARE), RELOAD_SECONDS) if said else START_LOOK_SECONDS)


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
        OSError: the port is taken, or the mirror cannot be written; the message says which.
    """
    port = free_port(port, bind)
    place = nullcontext(folder) if folder else tempfile.TemporaryDirectory(prefix="distlab-board-")
    with _interrupted_by_signals(), place as mirror:
        log = Path(mirror, "tensorboard.log")
        log.parent.mkdir(parents=True, exist_ok=True)
        child = _start(Path(mirror), port, bind, log)
        try:
            _keep(Mirror(runs_root(), Path(mirror)), child, port, bind)
        except KeyboardInterrupt:
            print("\nTensorBoard stops", flush=True)
            return 0
        finally:
            _stop(child)
        said = "\n".join(log.read_text(errors="replace").splitlines()[-10:])
        print(f"distlab board: TensorBoard ended with status {child.returncode}:\n{said}", file=sys.stderr)
        return child.returncode if child.returncode >= 0 else 128 - child.returncode
