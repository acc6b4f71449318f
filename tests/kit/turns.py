"""Tests that are timed run while no other test does, also where two pytest processes share the work."""

import fcntl
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def turn(folder: Path, alone: bool) -> Iterator[None]:
    """Hold a turn: many at once that are not alone, or a single one that is.

    Args:
        folder: what all processes share; it must exist.
        alone: wait until all others have ended, and let none begin.
    """
    with (folder / "door").open("w") as door, (folder / "room").open("w") as room:
        try:
            # Whoever waits for the empty room keeps the door shut, or others would come in for ever.
            fcntl.flock(door, fcntl.LOCK_EX)
            fcntl.flock(room, fcntl.LOCK_EX if alone else fcntl.LOCK_SH)
            fcntl.flock(door, fcntl.LOCK_UN)
            yield
        finally:
            # Not by closing alone: a process that a test forked has the files open, too.
            for file in (door, room):
                fcntl.flock(file, fcntl.LOCK_UN)


def wait(lock: Path, seconds: float) -> None:
    """Return once nobody holds a lock, or when the time is up; what was waited for is then not ready."""
    until = time.monotonic() + seconds
    with lock.open("a") as file:
        while time.monotonic() < until:
            try:
                fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
            except BlockingIOError:
                time.sleep(0.5)
            else:
                return fcntl.flock(file, fcntl.LOCK_UN)
    return None
