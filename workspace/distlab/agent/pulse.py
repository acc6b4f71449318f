"""Sees the ranks of one host end, also those that the launcher sees late or never.

torchrun's elastic agent waits half a minute for a rank that ignores SIGTERM before it reports the
failure of another, and forever for a warm rank that ends by os._exit(0).
"""

import json
import multiprocessing
import signal
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from multiprocessing.connection import wait
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

import psutil

from distlab.agent.pace import SHORTEST, pause

# After the first failure the elastic agent ends the other ranks: at once by SIGTERM, two seconds later by SIGKILL.
AFTER_SECONDS = {-signal.SIGTERM: 0.1, -signal.SIGKILL: 1.5}


def _is_running(pid: int) -> bool:
    try:
        return psutil.Process(pid).status() not in (psutil.STATUS_ZOMBIE, psutil.STATUS_DEAD)
    except psutil.Error:
        return False


class Pulse(threading.Thread):
    """Watches a folder of the records of `ranks` ranks; calls `on_failure` once, at the first failure."""

    def __init__(self, records: Path, ranks: int, on_failure: Callable[[], None]) -> None:
        super().__init__(daemon=True)
        self._records, self._ranks, self._on_failure = records, ranks, on_failure
        self._done = threading.Event()
        self._alarm, self._bell = multiprocessing.Pipe(duplex=False)
        self._pids: dict[int, int] = {}
        self._born: dict[int, int] = {}
        self._forked: dict[int, BaseProcess] = {}
        self._failed: dict[int, float] = {}
        self._vanished: dict[int, float] = {}
        self._ended: set[int] = set()
        self._told = False

    def born(self, pids: Mapping[int, int]) -> None:
        """Take the process ids of warm ranks, by rank, as soon as they are forked.

        Later it would be too late for a rank that dies before it can say which rank it is.
        """
        # The elastic agent does not hand out its processes, which alone know a warm rank's exit status.
        # Those that died while others were forked are missing here: Python has collected them.
        forked = {child.pid: child for child in multiprocessing.process._children}  # type: ignore[attr-defined]  # private
        self._forked = {rank: forked[pid] for rank, pid in pids.items() if pid in forked}
        self._born = dict(pids)

    def run(self) -> None:
        """Watch until all ranks have ended or `_done` is set; the thread's own body."""
        started = time.monotonic()
        while not self._done.is_set():
            # A warm rank's end wakes this at once, before the launcher acts on it. For a cold rank's end,
            # and for the file in which a rank says that it failed, one has to look now and then.
            warm = [process.sentinel for rank, process in self._forked.items() if rank not in self._ended]
            wait([self._alarm, *warm], pause(time.monotonic() - started) if warm else SHORTEST)
            self._look()

    def freeze(self) -> None:
        """Look a last time: whatever ends from now on was ended by the launcher."""
        if not self._done.is_set():
            self._done.set()
            self._bell.send(None)
            if threading.current_thread() is not self:
                self.join()
            self._look()

    def _look(self) -> None:
        now = time.monotonic()
        # Once all are known no file is looked for: a look takes the cores on which ranks compute.
        if len(self._pids) < self._ranks:
            for file in self._records.glob("rank*.pid"):
                self._pids.setdefault(int(file.stem[4:]), int(file.read_text()))
        for rank, pid in self._known().items():
            if rank in self._ended:
                continue
            alive = _is_running(pid)
            # In this order, since a rank writes its record before it ends.
            record = self.record(rank)
            if record is None and alive:
                continue
            self._ended.add(rank)
            if record is None:
                self._vanished[rank] = now
            if record is None or record["how"] == "raised" or record.get("status"):
                self._failed[rank] = now
        if not self._told and self._failed:
            self._told = True
            self._on_failure()

    def _known(self) -> dict[int, int]:
        """Process ids of ranks, also of those that have not said yet which rank they are."""
        return self._born | self._pids

    def record(self, rank: int) -> dict[str, Any] | None:
        """How a rank says that it ended, or None."""
        with suppress(OSError):
            record: dict[str, Any] = json.loads((self._records / f"rank{rank}.ending.json").read_text())
            return record
        return None

    def running(self) -> dict[int, int]:
        """Process ids of the ranks that have not ended, by rank."""
        return {rank: pid for rank, pid in self._pids.items() if rank not in self._ended and _is_running(pid)}

    def vanished(self, rank: int, failures: Mapping[int, int]) -> bool:
        """True for a rank that ended by itself and left no record. `failures` as for `status`."""
        return rank in self._vanished and not self._was_ended(rank, failures)

    def status(self, rank: int, failures: Mapping[int, int]) -> int | None:
        """Exit status of a rank that ended by itself, else None.

        Args:
            failures: the exit statuses that the launcher saw, the first that it saw first.
        """
        return None if self._was_ended(rank, failures) else self._status(rank, failures)

    def _status(self, rank: int, failures: Mapping[int, int]) -> int | None:
        if rank in failures:
            return failures[rank]
        # Not `exitcode`: that may read the status away from the launcher, which waits for it too.
        popen = getattr(self._forked.get(rank), "_popen", None)
        return popen.returncode if popen else None

    def _was_ended(self, rank: int, failures: Mapping[int, int]) -> bool:
        """True when a signal came from the launcher, because another rank had failed before."""
        status = self._status(rank, failures)
        if status not in AFTER_SECONDS:
            return rank in self._known() and rank not in self._ended
        if rank not in self._vanished:
            return True
        first = next(iter(failures), None)
        if status == -signal.SIGTERM and first in self._vanished:
            # A rank may end by this signal before the loop here has seen the first one's end.
            return rank != first
        others = [when for other, when in self._failed.items() if other != rank]
        return bool(others) and self._vanished[rank] > min(others) + AFTER_SECONDS[status]
