"""Removes seats and leaves nothing of them but the attendees' work."""

import shlex
from concurrent.futures import ThreadPoolExecutor

from distlab.classroom import engine
from distlab.classroom.folder import shown
from distlab.classroom.project import Project
from distlab.classroom.seats import Seat, of_project

AT_ONCE = 4


def _here() -> list[Seat]:
    """Every seat of which something is left, unless another copy of the repository started it."""
    elsewhere = {
        container.project: container.started_from for container in engine.containers() if engine.is_elsewhere(container)
    }
    found = sorted(seat for seat in map(of_project, engine.project_names()) if seat)
    for seat in found:
        if folder := elsewhere.get(seat.project):
            print(f"{seat.project} is left alone: it was started from {folder}")
    return [seat for seat in found if seat.project not in elsewhere]


def down(wanted: list[Seat] | None = None) -> int:
    """Remove these seats, or all: 1 when something is left of them.

    Raises:
        ClassroomError: no engine or no compose answers.
    """
    engine.engine_version()
    engine.compose_version()
    wanted = _here() if wanted is None else [seat for seat in wanted if engine.left_of(seat.project)]
    if not wanted:
        print("nothing of it is here")
    with ThreadPoolExecutor(AT_ONCE) as pool:
        left = list(pool.map(lambda seat: Project(seat.project).remove(), wanted))
    for seat, rest in zip(wanted, left, strict=True):
        print(f"{seat.project}: " + (f"not removed: {', '.join(rest)}" if rest else "removed"))
        if seat.copy.exists():
            print(f"    {shown(seat.copy)} keeps the work; to delete it: rm -r {shlex.quote(shown(seat.copy.parent))}")
    return 1 if any(left) else 0
