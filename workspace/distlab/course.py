"""The lessons of the course: what each is called, how long it takes, what it needs."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Protocol

from distlab.errors import DistlabError
from distlab.runs import WORKSPACE


class CourseError(DistlabError, ValueError):
    """Something was asked for that the course does not have; says what it has."""


class Build(Protocol):
    """How far something is that is built on this machine for one lesson."""

    @property
    def name(self) -> str:
        """A word for it, `ready` at its end."""
        ...

    @property
    def text(self) -> str:
        """The same in a sentence."""
        ...

    @property
    def remedy(self) -> str:
        """What to do, if anything."""
        ...


@dataclass(frozen=True)
class Lesson:
    """One notebook of the course.

    Attributes:
        shortest: the shortest course that it is in, in hours; None: in no course, for whoever wants it.
        needs: packages beyond torch.
        builds: when what it needs is built on this machine, tells how far that is. No other lesson waits for it.
        exercise: the exercise that ends it, as `check` takes it.
        exercise_hosts, exercise_launcher: where and how a check runs it.
    """

    file: str
    title: str
    minutes: int
    shortest: int | None
    teaches: str
    needs: tuple[str, ...] = ()
    builds: Callable[[], Build] | None = None
    exercise: str | None = None
    exercise_hosts: str = "node1:2,node2:2"
    exercise_launcher: str = "torchrun"

    @property
    def path(self) -> Path:
        """Where the notebook is, if it is there."""
        return WORKSPACE / self.file

    @property
    def here(self) -> bool:
        """True when this copy of the workshop has the notebook."""
        return self.path.exists()


START = Lesson("Start_Here.ipynb", "Start here", 10, 2, "the hosts, the course, the first run on four ranks")
CHALLENGE = Lesson("Challenge.ipynb", "Challenge", 90, 8, "everything at once, checked")
COURSES = (2, 4, 8)
FOLDER = Path(__file__).resolve().parent / "lessons"


@cache
def folders() -> dict[str, Lesson]:
    """The lessons by the name of their folder, in the order of the course."""
    names = [path.parent.name for path in FOLDER.glob("*/__init__.py")]
    cards = {name: import_module(f"distlab.lessons.{name}").LESSON for name in names}
    return dict(sorted(cards.items(), key=lambda card: card[1].file))


def lessons() -> list[Lesson]:
    """All notebooks of the course, from the first to the challenge."""
    return [START, *folders().values(), CHALLENGE]


def syllabus(hours: int) -> list[Lesson]:
    """Lessons of the course of so many hours, in order.

    Raises:
        CourseError: there is no course of that length.
    """
    if hours not in COURSES:
        raise CourseError(f"there is no course of {hours} hours: choose {', '.join(map(str, COURSES))}")
    return [lesson for lesson in lessons() if lesson.shortest is not None and lesson.shortest <= hours]


class Syllabus:
    """All lessons with minutes and the courses they belong to, for a notebook or a terminal."""

    def rows(self) -> list[tuple[Lesson, list[bool]]]:
        """Each lesson and whether the 2, 4 and 8 hour courses have it."""
        return [(lesson, [lesson in syllabus(hours) for hours in COURSES]) for lesson in lessons()]

    def minutes(self, hours: int) -> int:
        """Minutes of work in the course of so many hours; the rest is breaks and questions."""
        return sum(lesson.minutes for lesson in syllabus(hours))

    def __repr__(self) -> str:
        lines = [f"{'lesson':46}{'minutes':>8}" + "".join(f"{f'{hours} h':>6}" for hours in COURSES)]
        for lesson, member in self.rows():
            title = lesson.title + ("" if lesson.here else " (to come)")
            lines.append(
                f"{title:46}{lesson.minutes:>8}" + "".join(f"{'x' if belongs else '':>6}" for belongs in member)
            )
        lines.append(f"{'minutes in all':54}" + "".join(f"{self.minutes(hours):>6}" for hours in COURSES))
        return "\n".join(lines)

    def _repr_html_(self) -> str:
        head = "".join(f"<th>{hours} hours</th>" for hours in COURSES)
        rows = []
        for lesson, member in self.rows():
            title = f'<a href="{lesson.file}">{lesson.title}</a>' if lesson.here else f"{lesson.title} (to come)"
            marks = "".join(f"<td style='text-align:center'>{'●' if belongs else ''}</td>" for belongs in member)
            rows.append(
                f"<tr><td style='text-align:left'>{title}</td><td style='text-align:left'>{lesson.teaches}</td>"
                f"<td>{lesson.minutes}</td>{marks}</tr>"
            )
        total = "".join(f"<th style='text-align:center'>{self.minutes(hours)}</th>" for hours in COURSES)
        return (
            "<table><tr><th style='text-align:left'>lesson</th><th style='text-align:left'>what it teaches</th>"
            f"<th>minutes</th>{head}</tr>{''.join(rows)}<tr><th colspan=3>minutes in all</th>{total}</tr></table>"
        )
