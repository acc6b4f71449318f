"""Runs scripts on two simulated hosts and tells what is left of them."""

import io
import json
import os
import re
import time
import uuid
from dataclasses import dataclass
from pathlib import Path

import leftovers
import psutil
import pytest
from distlab.hosts import Host
from distlab.launch import RunFailed, RunResult, Session, run
from distlab.waiting import wait_until

SCRIPTS = Path(__file__).parent / "scripts"
TWO_BY_TWO = "node1:2,node2:2"
IDLE_SECONDS = 3.0


class MarkedSession(Session):
    """A session whose processes can be told from all others on this machine."""

    def __init__(self) -> None:
        super().__init__()
        self.mark = uuid.uuid4().hex

    def connect(self, hosts: list[Host], *more: object) -> list:
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv(leftovers.MARK, self.mark)
            return super().connect(hosts, *more)

    def strangers(self) -> dict[int, str]:
        """Processes that idle agents have no use for; each keeps one forkserver and its tracker."""
        found = leftovers.marked(self.mark)
        for agent in self.pids.values():
            found.pop(agent, None)
            for own in ("multiprocessing.forkserver", "multiprocessing.resource_tracker"):
                children = {process.pid for process in psutil.Process(agent).children()}
                pid = next((pid for pid, command in found.items() if own in command and pid in children), None)
                found.pop(pid, None)
        return found

    def assert_idle(self) -> None:
        """No process, port, zombie or job folder of a run is left."""
        wait_until(lambda: not self.strangers(), IDLE_SECONDS)
        assert not self.strangers()
        pids = list(self.pids.values())
        wait_until(lambda: not leftovers.listening(pids), IDLE_SECONDS)
        assert not leftovers.listening(pids)
        assert not leftovers.zombies()


@dataclass
class Failure:
    """A run that failed, as a person met it."""

    message: str
    result: RunResult
    said: str
    seconds: float
    ended: float

    @property
    def after(self) -> float:
        """Seconds from the last time that a rank said it started or joined."""
        times = [float(word) for word in re.findall(r"\| (?:started|joined) ([0-9.]+)", self.said)]
        return self.ended - max(times)

    def how(self) -> dict[int, str]:
        """How each rank ended."""
        return {end.rank: end.how for end in self.result.ranks}


def script_path(script: str | Path) -> Path:
    """A script of this folder by name, or any by path."""
    return script if isinstance(script, Path) else SCRIPTS / f"{script}.py"


class Runner:
    """Runs one of this folder's scripts in a session and keeps what was said."""

    def __init__(self, session: Session) -> None:
        self.session = session
        self.said = ""

    def __call__(self, script: str | Path, *words: str, hosts: object = TWO_BY_TWO, **more: object) -> RunResult:
        out = io.StringIO()
        try:
            return run(
                script_path(script), *words, hosts=hosts, session=self.session, out=out, **{"timeout": 40} | more
            )
        finally:
            self.said = out.getvalue()

    def fails(self, *arguments: object, **more: object) -> Failure:
        """Run what must fail."""
        started = time.monotonic()
        with pytest.raises(RunFailed) as caught:
            self(*arguments, **more)
        seconds = time.monotonic() - started
        return Failure(str(caught.value), caught.value.result, self.said, seconds, time.time())


def seen_by(result: RunResult) -> list[dict]:
    """What each rank of who.py printed, by rank."""
    lines = {rank: text for rank, text in result.output if text.startswith("{")}
    return [json.loads(lines[rank]) for rank in range(len(lines))]


def marked_environment(mark: str) -> dict[str, str]:
    """The environment under which processes can be found again."""
    return {**os.environ, leftovers.MARK: mark}
