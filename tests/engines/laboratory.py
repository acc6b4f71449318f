"""Starts JupyterLab by a command, as a person would, and stops it again."""

import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
DISTLAB = Path(sys.executable).with_name("distlab")


class Lab:
    """A started command that ends in JupyterLab, and what it says."""

    def __init__(self, *command: str, **env: str) -> None:
        self.process = subprocess.Popen(
            command,
            cwd=ROOT,
            env={**os.environ, **env},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )
        self.said = ""

    def wait_for_url(self) -> tuple[str, str]:
        """Address and token, once the server answers."""
        for line in self.process.stdout:
            self.said += line
            if found := re.search(r"(http://[\d.]+:\d+)/lab/tree/Start_Here.ipynb\?token=(\S+)", line):
                return found[1], found[2]
        raise AssertionError(f"no URL was printed:\n{self.said}")

    def stop(self) -> None:
        """As Ctrl-C in the terminal does."""
        os.killpg(self.process.pid, signal.SIGINT)
        self.process.wait(timeout=30)


@contextmanager
def starting(folder: Path) -> Iterator[Callable[..., Lab]]:
    """A function that starts Labs whose runs and settings lie in a folder; none outlives the block.

    JupyterLab finds no settings there, as on the first day of an attendee, and leaves yours alone.
    """
    started: list[Lab] = []
    own = {"DISTLAB_RUNS": folder, "JUPYTER_CONFIG_DIR": folder / "config", "JUPYTER_DATA_DIR": folder / "data"}

    def start(*command: str, **env: str) -> Lab:
        started.append(Lab(*command, **{name: str(path) for name, path in own.items()}, **env))
        return started[-1]

    try:
        yield start
    finally:
        for lab in started:
            if lab.process.poll() is None:
                os.killpg(lab.process.pid, signal.SIGKILL)
                lab.process.wait()
