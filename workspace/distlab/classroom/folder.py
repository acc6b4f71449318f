"""The folder that attendees work in, and as whom the containers run so that both may write it."""

import os
import shutil
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from distlab.classroom.settings import ROOT, ClassroomError
from distlab.whole import whole_folder

# The user id of the image's own user.
ATTENDEE = 1000
# Runs and caches of whoever worked in the workspace are not copied.
LEFT_OUT = shutil.ignore_patterns("runs", "__pycache__", ".*_cache", ".ipynb_checkpoints", "*.egg-info")


@dataclass(frozen=True)
class Place:
    """A folder, the user and group that its containers run as, and what the instructor should know."""

    folder: Path
    uid: int
    gid: int
    text: str = ""


def shown(path: Path) -> str:
    """A path as short as it can be said here."""
    return str(path.relative_to(ROOT)) if path.is_relative_to(ROOT) else str(path)


def _chosen(name: str, settings: Mapping[str, str]) -> int | None:
    text = settings.get(name, "")
    if text and not text.isdecimal():
        raise ClassroomError(f"{name}={text} is no number", "write what `id -u` and `id -g` print, or leave it out")
    return int(text) if text else None


def give_away(folder: Path, uid: int, gid: int) -> None:
    """Make a user and a group the owner of a folder and of all that is in it."""
    for path in (folder, *folder.rglob("*")):
        os.chown(path, uid, gid, follow_symlinks=False)


def make_copy(source: Path, target: Path, owner: tuple[int, int] | None = None) -> None:
    """Copy the workspace without runs and caches; nobody ever sees half a copy."""
    target.parent.mkdir(parents=True, exist_ok=True)
    with whole_folder(target) as work:
        shutil.copytree(source, work, symlinks=True, ignore=LEFT_OUT, dirs_exist_ok=True)
        if owner:
            give_away(work, *owner)


def owner_of(path: Path) -> tuple[int, int]:
    """User and group."""
    found = path.stat()
    return found.st_uid, found.st_gid


def prepare(copy: Path, settings: Mapping[str, str], own: bool) -> Place:
    """The folder to mount: the workspace itself, or with `own` a copy of it.

    It is a copy too where root owns the workspace, since containers do not run as root. A copy
    that is there already is somebody's work and stays as it is.

    Raises:
        ClassroomError: a setting cannot be, or the workspace is root's and you are not.
    """
    source = (ROOT / settings["WORKSHOP_FOLDER"]).resolve()
    if not source.is_dir():
        raise ClassroomError(f"WORKSHOP_FOLDER={settings['WORKSHOP_FOLDER']} is no folder", "make it, or leave it out")
    uid, gid = _chosen("WORKSHOP_UID", settings), _chosen("WORKSHOP_GID", settings)
    if uid == 0:
        raise ClassroomError("WORKSHOP_UID=0 is root, as whom containers do not run", "leave it out")

    def preferred(owner: tuple[int, int]) -> tuple[int, int]:
        return owner[0] if uid is None else uid, owner[1] if gid is None else gid

    root, roots = os.geteuid() == 0, owner_of(source)[0] == 0
    if roots and not root:
        raise ClassroomError(
            f"{source} belongs to root, as whom containers do not run",
            "sudo chown -R $(id -u):$(id -g) that folder, or use a copy of the repository that is yours",
        )
    if not own and not roots:
        return Place(source, *preferred(owner_of(source)))
    attendee = preferred((ATTENDEE, ATTENDEE) if roots else owner_of(source))
    history = "as it was left" if copy.exists() else "copied now"
    if not copy.exists():
        make_copy(source, copy, attendee if root else None)
    elif root and owner_of(copy)[0] == 0:
        give_away(copy, *attendee)
    place = Place(copy, *preferred(owner_of(copy)))
    why = f" ({shown(source)} is root's, as whom containers do not run)" if roots else ""
    return replace(place, text=f"works in {shown(copy)}, {history}, as {place.uid}:{place.gid}{why}")
