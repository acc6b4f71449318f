"""Where prepared data live, and how one process per machine makes them while the others wait.

A prepared set is a folder with a marker, `set.json`, that lists its files and their sizes. It is
made under a lock in a hidden sibling and renamed when whole, so whoever finds the marker reads
complete data. A process that is killed meanwhile leaves only a sibling, which the next one removes.
"""

import errno
import json
import os
import shutil
import socket
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path

from filelock import FileLock, Timeout

from distlab.errors import DistlabError
from distlab.waiting import wait_until

FORMAT = 1
MARKER = "set.json"
SECONDS_BEFORE_NOTICE = 3.0
LEADER_SECONDS = 2.0
RETRY_SECONDS = 600.0


class DataError(DistlabError, ValueError):
    """No such set, or its files have a fault; the message names it."""


class HostDataError(DistlabError, RuntimeError):
    """What one host holds stops all ranks; names the host or the file."""


class DataFolderError(DistlabError, OSError):
    """The data folder cannot be written or is full."""


class FolderTaken(DataFolderError, FileExistsError):
    """Something else has the name of the set's folder."""


class PrepareTimeout(DistlabError, TimeoutError):
    """Another process was still preparing at the deadline."""


class Unavailable(DistlabError, RuntimeError):
    """A set cannot be had here, and why. `remember`: do not try again for 10 minutes."""

    def __init__(self, reason: str, remember: bool = False) -> None:
        super().__init__(reason)
        self.remember = remember


@dataclass(frozen=True)
class Prepared:
    """A set ready to be read.

    Attributes:
        facts: what its marker says: name, classes, shape, sizes, mean, std, digest.
        note: a line to print, or empty.
        fresh: this process has just made it.
    """

    folder: Path
    facts: dict
    note: str = ""
    fresh: bool = False


def speak(text: str) -> None:
    """Print a line to stderr at once."""
    print(text, file=sys.stderr, flush=True)


def data_root(root: str | os.PathLike | None = None) -> Path:
    """Where prepared data live: `root`, DISTLAB_DATA, or `~/.cache/distlab/data`."""
    chosen = root or os.environ.get("DISTLAB_DATA") or "~/.cache/distlab/data"
    return Path(chosen).expanduser().absolute()


def wait_seconds() -> float:
    """How long a process waits for another that prepares: DISTLAB_PREPARE_TIMEOUT, 900 s by default."""
    return float(os.environ.get("DISTLAB_PREPARE_TIMEOUT", "900"))


def find(folder: Path) -> Prepared | None:
    """The prepared set in a folder, or None when it is missing, of another format or not whole."""
    try:
        facts = json.loads((folder / MARKER).read_text())
        whole = facts["format"] == FORMAT and all(
            (folder / name).stat().st_size == size for name, size in facts["files"].items()
        )
    except (OSError, ValueError, KeyError):
        return None
    return Prepared(folder, facts, facts["note"]) if whole else None


def once(
    folder: Path,
    make: Callable[[Path], dict],
    *,
    leads: bool = True,
    retry: bool = False,
    say: Callable[[str], None] = speak,
) -> Prepared:
    """Find a prepared set, or have one process of this machine make it while the others wait.

    Args:
        folder: where the set belongs, directly below the data folder.
        make: fills an empty folder and returns the facts of the set for its marker.
        leads: this process goes first. Others take over only when nobody has begun after 2 s.
        retry: try again although a recent attempt found the set unavailable.

    Raises:
        DataFolderError: the data folder cannot be written, or is full.
        PrepareTimeout: another process was still preparing at the deadline.
        Unavailable: `make` said so, now or within the last 10 minutes.
    """
    if found := find(folder):
        return found
    root, name, host = folder.parent, folder.name, socket.gethostname()
    _make_root(root)
    part, old, failed = (root / f".{name}@{host}.{kind}" for kind in ("part", "old", "failed"))
    if not leads:
        _let_the_leader_begin(folder, failed)
    with _only_writer(root / f".{name}@{host}.lock", name, say):
        if found := find(folder):
            return found
        if not retry:
            _recall(failed)
        _clear(part, old, failed)
        part.mkdir()
        try:
            facts = make(part)
            sizes = {file.name: file.stat().st_size for file in sorted(part.iterdir()) if file.is_file()}
            marker = {"name": name, "note": "", **facts, "format": FORMAT, "files": sizes}
            (part / MARKER).write_text(json.dumps(marker, indent=1))
            _publish(part, folder, old)
        except Unavailable as error:
            if error.remember:
                failed.write_text(str(error))
            raise
        except OSError as error:
            if error.errno not in (errno.ENOSPC, errno.EDQUOT):
                raise
            raise DataFolderError(
                error.errno,
                f"no space left in {root} while preparing {name}: free some or set DISTLAB_DATA to a folder with room",
            ) from None
        finally:
            _clear(part, old)
    found = find(folder)
    if found is None:
        raise DataFolderError(
            errno.EIO, f"{folder} was prepared but cannot be read back: is something else removing files there?"
        )
    return replace(found, fresh=True)


def _make_root(root: Path) -> None:
    try:
        root.mkdir(parents=True, exist_ok=True)
        probe = root / f".write-{socket.gethostname()}-{os.getpid()}"
        probe.write_bytes(b"x")
        probe.unlink()
    except OSError as error:
        raise DataFolderError(
            error.errno,
            f"cannot write the data folder {root}: {error.strerror}. "
            "Free space or set DISTLAB_DATA to a folder that you own",
        ) from None


def _let_the_leader_begin(folder: Path, failed: Path) -> None:
    wait_until(lambda: find(folder) or failed.exists(), LEADER_SECONDS)


@contextmanager
def _only_writer(path: Path, name: str, say: Callable[[str], None]) -> Iterator[None]:
    # A lock per machine, since locks on network folders are unreliable. Two machines may prepare one set at
    # the same time: the first rename wins.
    limit = wait_seconds()
    lock = FileLock(path)
    try:
        lock.acquire(timeout=min(SECONDS_BEFORE_NOTICE, limit))
    except Timeout:
        say(f"waiting for another process on this machine to prepare {name}, at most {limit:.0f} s")
        try:
            lock.acquire(timeout=max(0.0, limit - SECONDS_BEFORE_NOTICE))
        except Timeout:
            raise PrepareTimeout(
                f"another process on {socket.gethostname()} was still preparing {name} after {limit:.0f} s "
                f"(it holds {path}): stop it, or run `python -m distlab.data {name}` first"
            ) from None
    try:
        yield
    finally:
        lock.release()


def _recall(failed: Path) -> None:
    with suppress(OSError):
        if 0 <= time.time() - failed.stat().st_mtime < RETRY_SECONDS:
            raise Unavailable(failed.read_text())


def _clear(*leftovers: Path) -> None:
    for path in leftovers:
        if path.is_dir():
            shutil.rmtree(path, ignore_errors=True)
        else:
            path.unlink(missing_ok=True)


def _publish(part: Path, folder: Path, old: Path) -> None:
    try:
        part.rename(folder)
    except OSError:
        if find(folder):
            return
        if not (folder / MARKER).exists():
            raise FolderTaken(
                errno.EEXIST,
                f"{folder} is in the way and was not made by distlab: move it or set DISTLAB_DATA elsewhere",
            ) from None
        folder.rename(old)
        part.rename(folder)
