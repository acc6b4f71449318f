"""Files and folders of which nobody ever sees half: written beside their place, then renamed into it."""

import errno
import os
import secrets
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path


def write_whole(
    path: Path | str, content: bytes | memoryview | str, durable: bool = False, alone: bool = False
) -> None:
    """Write a file, or leave the one that is there as it was.

    Args:
        content: text is written as UTF-8.
        durable: return only when the file would outlast a power cut; takes the disk's time.
        alone: nobody else writes this file, so what earlier writers left when they were killed is removed.

    Raises:
        OSError: the folder is missing, full or closed to us.
    """
    path = Path(path)
    # Two containers may have one folder and the same process number.
    half = path.with_name(f".{path.name}.{os.getpid()}-{secrets.token_hex(4)}.half")
    try:
        with half.open("wb") as file:
            file.write(content.encode() if isinstance(content, str) else content)
            if durable:
                file.flush()
                os.fsync(file.fileno())
        half.replace(path)
        if durable:
            _sync_folder(path.parent)
        if alone:
            for left_by_killed in path.parent.glob(f".{path.name}.*.half"):
                left_by_killed.unlink(missing_ok=True)
    finally:
        # Renamed by now, unless something went wrong.
        with suppress(OSError):
            half.unlink(missing_ok=True)


def _sync_folder(folder: Path) -> None:
    # A new name outlasts a power cut only once its folder is on disk too.
    opened = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(opened)
    finally:
        os.close(opened)


@contextmanager
def whole_folder(path: Path) -> Iterator[Path]:
    """A new folder that gets the name `path` when the block ends well, and is removed when it does not.

    Until the block changes that, it is closed to other users (mode 0700).

    Raises:
        FileExistsError: somebody else was there first; theirs stays.
        OSError: the folder above is missing, full or closed to us.
    """
    work = Path(tempfile.mkdtemp(prefix=f".{path.name}-", dir=path.parent))
    try:
        yield work
        try:
            work.rename(path)
        except OSError as error:
            if error.errno in (errno.ENOTEMPTY, errno.ENOTDIR):
                raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), str(path)) from None
            raise
    finally:
        shutil.rmtree(work, ignore_errors=True)
