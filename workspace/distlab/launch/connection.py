"""One host's agent, seen from the notebook: a process here or over ssh, and what it says."""

import os
import queue
import shlex
import shutil
import subprocess
import sys
import tempfile
import threading
import uuid
from contextlib import suppress
from pathlib import Path
from typing import Any

from distlab.agent.placeholder import close_doors
from distlab.agent.wire import receive, send
from distlab.errors import DistlabError
from distlab.hosts import Host
from distlab.launchers import SETTINGS
from distlab.runs import WORKSPACE

AGENT = ["-m", "distlab.agent"]
CLOSE_SECONDS = 3.0
# Not passed when the agent starts, since it outlives many jobs: each job sends their current values.
WITH_EACH_JOB = ("DISTLAB_", "NCCL_", "TQDM_", "PYTHONFAULTHANDLER", *SETTINGS)
# All that an agent starts inherits this variable, by which it is found when the agent was killed.
FAMILY = "LAB_AGENT_FAMILY"


class HostError(DistlabError, RuntimeError):
    """A host did not join or was lost; says which and what to do."""


def ssh_command(host: Host) -> list[str]:
    """How to start the agent on a host over ssh; DISTLAB_SSH replaces `ssh` and its options."""
    ssh = shlex.split(os.environ.get("DISTLAB_SSH", "ssh"))
    python = os.environ.get("DISTLAB_REMOTE_PYTHON", sys.executable)
    folder = os.environ.get("DISTLAB_REMOTE_WORKSPACE", str(WORKSPACE))
    remote = f"cd {shlex.quote(folder)} && exec {shlex.join([python, *AGENT])}"
    # A host that is switched off closes no connection, so ssh asks every few seconds whether it is there.
    options = {"BatchMode": "yes", "ConnectTimeout": 10, "ServerAliveInterval": 3, "ServerAliveCountMax": 3}
    return [*ssh, *(word for name, value in options.items() for word in ("-o", f"{name}={value}")), host.name, remote]


class Connection:
    """Starts a host's agent; its messages arrive as (host name, message) in one shared queue.

    When the agent is gone, a last message {"event": "gone", "status": ...} arrives.

    Raises:
        HostError: there is no ssh on this machine.
    """

    def __init__(self, host: Host, inbox: queue.Queue[tuple[str, dict[str, Any]]]) -> None:
        self.host = host
        self.said_hello = False
        self._inbox = inbox
        self._folder: str | None = None
        self._family = uuid.uuid4().hex
        self._errors = tempfile.TemporaryFile("w+", encoding="utf-8", errors="replace")
        command = ssh_command(host) if host.kind == "ssh" else [sys.executable, *AGENT]
        environ = {name: value for name, value in os.environ.items() if not name.startswith(WITH_EACH_JOB)}
        try:
            self._process = subprocess.Popen(
                command,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=self._errors,
                text=True,
                encoding="utf-8",
                errors="replace",
                cwd=None if host.kind == "ssh" else WORKSPACE,
                env=None if host.kind == "ssh" else {**environ, FAMILY: self._family},
                # Ctrl-C and a kernel's interrupt go to the whole process group, but the agent must
                # live on to stop its ranks.
                start_new_session=True,
            )
        except (FileNotFoundError, PermissionError) as error:
            raise HostError(f"{host.name} cannot be reached: {command[0]!r}: {error.strerror}") from None
        # Both are pipes, as asked for above.
        assert self._process.stdin and self._process.stdout
        self._to_agent, self._from_agent = self._process.stdin, self._process.stdout
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()
        self.send(do="hello", env=host.environment())

    def _read(self) -> None:
        for message in receive(self._from_agent):
            if message["event"] == "hello":
                self._folder = message["folder"]
                self.said_hello = True
            self._inbox.put((self.host.name, message))
        status = self._process.wait()
        self._clear_up()
        self._inbox.put((self.host.name, {"event": "gone", "status": status, "said": self.last_words()}))

    def _clear_up(self) -> None:
        """Remove what an agent on this machine leaves when it was killed."""
        if self.host.kind == "ssh" or self._folder is None:
            return
        close_doors(self._folder)
        if not Path(self._folder).exists():
            return
        import psutil

        for process in psutil.process_iter():
            with suppress(psutil.Error):
                if process.environ().get(FAMILY) == self._family:
                    process.kill()
        shutil.rmtree(self._folder, ignore_errors=True)

    @property
    def pid(self) -> int:
        """Process id of the agent, or of the ssh that leads to it."""
        return self._process.pid

    @property
    def alive(self) -> bool:
        """True while the agent runs."""
        return self._process.poll() is None

    def serves(self, host: Host) -> bool:
        """True when this agent can start ranks of `host`: slots and cores may differ, GPUs may not."""
        mine = self.host
        return (mine.name, mine.kind, mine.environment()) == (host.name, host.kind, host.environment())

    def send(self, **message: object) -> None:
        """Tell the agent something. When it is gone, its last message says so."""
        with suppress(BrokenPipeError, ValueError):
            send(self._to_agent, **message)

    def last_words(self, lines: int = 1) -> str:
        """The last lines that the agent, or ssh, wrote to stderr."""
        self._errors.seek(0)
        said = [line.strip() for line in self._errors.read().splitlines() if line.strip()]
        return "\n".join(said[-lines:])

    def hang_up(self) -> None:
        """Close the connection; the agent then ends with all it started."""
        with suppress(OSError, ValueError):
            self._to_agent.close()

    def close(self, seconds: float = CLOSE_SECONDS) -> None:
        """Hang up and wait for the agent's end; one that takes too long is killed."""
        self.hang_up()
        try:
            self._process.wait(seconds)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._reader.join(1.0)


def unreachable(host: Host, seconds: float | None, last_words: str) -> str:
    """What to say about a host that did not join within `seconds`, or gave up at once (None)."""
    failed = f"did not join within {seconds:.0f} s" if seconds else "could not join"
    said = f" ({last_words})" if last_words else ""
    if host.kind == "ssh":
        return f"{host.name} {failed}{said}: is its container up? `docker compose ps`; or try `ssh {host.name}`"
    return f"{host.name}, a host on this machine, {failed}{said}: `distlab doctor` says more"
