"""The folder of a run: logs, metrics and checkpoints of one start of one script."""

import errno
import os
import sys
import time
from pathlib import Path

from distlab.errors import DistlabError

WORKSPACE = Path(__file__).resolve().parents[1]


def runs_root() -> Path:
    """Where run folders are made: DISTLAB_RUNS, or `runs/` beside the package.

    In an image whose workspace may not be written, the folder that all hosts share (DISTLAB_SHARED).
    """
    if chosen := os.environ.get("DISTLAB_RUNS"):
        return Path(chosen)
    beside, shared = WORKSPACE / "runs", os.environ.get("DISTLAB_SHARED")
    if shared and not os.access(beside if beside.exists() else WORKSPACE, os.W_OK):
        return Path(shared) / "runs"
    return beside


def workspace_trouble() -> tuple[str, str] | None:
    """Why notebooks and exercises cannot be saved and what to do about it, or None when they can."""
    if os.access(WORKSPACE, os.W_OK):
        return None
    if os.statvfs(WORKSPACE).f_flag & os.ST_RDONLY:
        return f"{WORKSPACE} is part of a read-only image", "bind a copy of your own: apptainer run-help IMAGE says how"
    owner = WORKSPACE.stat()
    text = f"{WORKSPACE} belongs to {owner.st_uid}:{owner.st_gid}, and this runs as {os.getuid()}:{os.getgid()}"
    if not os.environ.get("DISTLAB_IMAGE"):
        return text, "give it to yourself with chown, or work in a copy"
    if owner.st_uid == 0:
        return text, "on the host, start with make up, which makes a copy that may be written"
    settings = f"WORKSHOP_UID={owner.st_uid} and WORKSHOP_GID={owner.st_gid}"
    return text, f"on the host, write {settings} to .env and start anew"


def short_name(script: str | Path) -> str:
    """A script's name as a word: `ddp`, and `ddp-shards` for an experiment of a lesson."""
    path = Path(script)
    return f"{path.parts[-3]}-{path.stem}" if path.parent.name == "experiments" else path.stem


def new_run_name(script: str | Path) -> str:
    """A name that sorts by time: `20260131-142500-ddp-417`."""
    return f"{time.strftime('%Y%m%d-%H%M%S')}-{short_name(script)}-{os.getpid()}"


def script_name() -> str:
    """The script that this process runs."""
    return sys.argv[0] or "python"


class RunFolderError(DistlabError, OSError):
    """A run folder cannot be written; says which, why and what to do."""


def _remedy(error: OSError) -> str:
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return "Free some space, or set DISTLAB_RUNS to a folder on another disk"
    return "Set DISTLAB_RUNS to a folder that you may write"


def unwritable(folder: Path, error: OSError) -> RunFolderError:
    """The error to raise in place of one that came up while a run folder was written."""
    return RunFolderError(error.errno, f"cannot write the run folder {folder}: {error.strerror}. {_remedy(error)}")


def make_folder(folder: Path) -> Path:
    """Make a run folder.

    Raises:
        RunFolderError: it cannot be made or written.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
        probe = folder / f".write-{os.getpid()}"
        probe.write_bytes(b"x")
        probe.unlink()
    except OSError as error:
        raise unwritable(folder, error) from None
    return folder


def run_folder() -> Path | None:
    """The folder of this run as the launcher or `process` set it, or None outside a run."""
    folder = os.environ.get("DISTLAB_RUN_DIR")
    return Path(folder) if folder else None
