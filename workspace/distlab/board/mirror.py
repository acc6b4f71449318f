"""Mirrors the runs' JSON lines into TensorBoard's event files, one TensorBoard run per rank."""

import os
import re
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path

from tensorboard.compat.proto.event_pb2 import Event

from distlab.board.events import EventFile, MirrorError
from distlab.board.scalars import event_of
from distlab.report import FOLDER

RANK_FILE = re.compile(r"(rank\d+)\.jsonl")


def _say(text: str) -> None:
    print(f"distlab board: {text}", file=sys.stderr, flush=True)


class _Curves:
    """One rank's file, read up to the end of its last whole line, and its event file."""

    def __init__(self, source: str, folder: Path) -> None:
        self._source, self.events = source, EventFile(folder)
        self._offset = self._lines = 0
        self._inode: int | None = None
        self._seen: tuple[int, int] | None = None
        self._complained = False

    def look(self) -> None:
        """Mirror the lines that are new.

        Raises:
            MirrorError: the event file cannot be written.
            OSError: the rank's file is gone or cannot be read.
        """
        status = os.stat(self._source)
        seen = status.st_size, status.st_mtime_ns
        if status.st_ino != self._inode or status.st_size < self._offset:
            if self._inode is not None:
                self.events.start_over()
            self._inode, self._offset, self._lines = status.st_ino, 0, 0
        elif seen == self._seen:
            return
        with open(self._source, "rb") as source:
            source.seek(self._offset)
            new = list(self._events(source))
        self.events.append(new)
        self._seen = seen

    def _events(self, lines: Iterable[bytes]) -> Iterator[Event]:
        for line in lines:
            # Half a line: the rank is still writing it, or was killed meanwhile.
            if not line.endswith(b"\n"):
                return
            self._offset += len(line)
            self._lines += 1
            try:
                event = event_of(line)
            except ValueError as error:
                self._complain(error)
            else:
                if event is not None:
                    yield event

    def _complain(self, error: ValueError) -> None:
        # Said once per file, since many lines may be broken.
        if not self._complained:
            self._complained = True
            _say(f"{self._source}, line {self._lines} is {error}; it and other such lines of this file are left out")


class Mirror:
    """Keeps `folder/RUN/rankN` as `runs/RUN/metrics/rankN.jsonl` is, one look at a time.

    A run that was deleted disappears, a file that was replaced starts over. Nothing else in `folder` is
    touched, and nothing is ever written into `runs`.
    """

    def __init__(self, runs: Path, folder: Path) -> None:
        self._runs, self._folder = runs, folder
        self._curves: dict[str, _Curves] = {}
        self._unreadable: set[str] = set()

    def look(self) -> None:
        """Mirror what is new since the last look. What cannot be read is said once and left out.

        Raises:
            MirrorError: the mirror cannot be written.
        """
        gone = set(self._curves)
        for run in self._names(str(self._runs)):
            metrics = f"{self._runs}/{run}/{FOLDER}"
            for name in self._names(metrics):
                if match := RANK_FILE.fullmatch(name):
                    path = f"{metrics}/{name}"
                    gone.discard(path)
                    self._follow(path, run, match[1])
        for path in gone:
            self._curves.pop(path).events.delete()

    def _names(self, folder: str) -> list[str]:
        try:
            return os.listdir(folder)
        except (FileNotFoundError, NotADirectoryError):
            return []
        except OSError as error:
            self._unreadable_once(folder, error)
            return []

    def _follow(self, path: str, run: str, rank: str) -> None:
        try:
            if path not in self._curves:
                self._curves[path] = _Curves(path, self._folder / run / rank)
            self._curves[path].look()
        except MirrorError:
            raise
        except FileNotFoundError:
            # Deleted since it was listed: the next look does not list it.
            return
        except OSError as error:
            self._unreadable_once(path, error)

    def _unreadable_once(self, path: str, error: OSError) -> None:
        if path not in self._unreadable:
            self._unreadable.add(path)
            _say(f"{path} cannot be read: {error.strerror}; it is left out")
