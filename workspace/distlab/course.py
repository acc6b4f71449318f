"""The lessons of the course: what each is called, how long it takes, what it needs."""

from dataclasses import dataclass
from pathlib import Path

from distlab.runs import WORKSPACE


class CourseError(ValueError):
    """Something was asked for that the course does not have; says what it has."""


@dataclass(frozen=True)
class Lesson:
    """One notebook. `needs` are packages beyond torch; `shortest` is the shortest course it is in, in hours."""

    file: str
    title: str
    minutes: int
    shortest: int
    teaches: str
    needs: tuple[str, ...] = ()

    @property
    def path(self) -> Path:
        """Where the notebook is, if it is there."""
        return WORKSPACE / self.file

    @property
    def here(self) -> bool:
        """True when this copy of the workshop has the notebook."""
        return self.path.exists()


LESSONS = (
    Lesson("Start_Here.ipynb", "Start here", 10, 2, "the hosts, the course, the first run on four ranks"),
    Lesson("01_data_parallel.ipynb", "DataParallel", 35, 2, "one process, several devices, and why it stops scaling"),
    Lesson(
        "02_message_passing.ipynb",
        "Message passing",
        90,
        4,
        "ranks, send and receive, collectives, a ring",
        ("ipyparallel", "mpi4py"),
    ),
    Lesson(
        "03_distributed_data_parallel.ipynb",
        "Distributed data parallel",
        75,
        2,
        "one process per device, gradients averaged while backward runs",
    ),
    Lesson("04_horovod.ipynb", "Horovod", 45, 8, "the same training with another library", ("horovod",)),
    Lesson(
        "05_mixed_precision_and_memory_format.ipynb",
        "Mixed precision and memory format",
        60,
        8,
        "fewer bits and a better layout, and when they pay",
    ),
    Lesson(
        "06_pipeline_parallelism.ipynb",
        "Pipeline parallelism",
        70,
        8,
        "a model over several devices, its schedules",
    ),
    Lesson("07_challenge.ipynb", "Challenge", 90, 8, "everything at once, checked"),
)

COURSES = (2, 4, 8)


def syllabus(hours: int) -> list[Lesson]:
    """Lessons of the course of so many hours, in order.

    Raises:
        CourseError: there is no course of that length.
    """
    if hours not in COURSES:
        raise CourseError(f"there is no course of {hours} hours: choose {', '.join(map(str, COURSES))}")
    return [lesson for lesson in LESSONS if lesson.shortest <= hours]


class Syllabus:
    """All lessons with minutes and the courses they belong to, for a notebook or a terminal."""

    def rows(self) -> list[tuple[Lesson, list[bool]]]:
        """Each lesson and whether the 2, 4 and 8 hour courses have it."""
        return [(lesson, [lesson in syllabus(hours) for hours in COURSES]) for lesson in LESSONS]

    def minutes(self, hours: int) -> int:
        """Minutes of work in the course of so many hours; the rest is breaks and questions."""
        return sum(lesson.minutes for lesson in syllabus(hours))

    def __repr__(self) -> str:
        lines = [f"{'lesson':46}{'minutes':>8}" + "".join(f"{f'{hours} h':>6}" for hours in COURSES)]
        for lesson, member in self.rows():
            title = lesson.title + ("" if lesson.here else " (to come)")
            lines.append(f"{title:46}{lesson.minutes:>8}" + "".join(f"{'x' if one else '':>6}" for one in member))
        lines.append(f"{'minutes in all':54}" + "".join(f"{self.minutes(hours):>6}" for hours in COURSES))
        return "\n".join(lines)

    def _repr_html_(self) -> str:
        head = "".join(f"<th>{hours} hours</th>" for hours in COURSES)
        rows = []
        for lesson, member in self.rows():
            title = f'<a href="{lesson.file}">{lesson.title}</a>' if lesson.here else f"{lesson.title} (to come)"
            marks = "".join(f"<td style='text-align:center'>{'●' if one else ''}</td>" for one in member)
            rows.append(
                f"<tr><td style='text-align:left'>{title}</td><td style='text-align:left'>{lesson.teaches}</td>"
                f"<td>{lesson.minutes}</td>{marks}</tr>"
            )
        total = "".join(f"<th style='text-align:center'>{self.minutes(hours)}</th>" for hours in COURSES)
        return (
            "<table><tr><th style='text-align:left'>lesson</th><th style='text-align:left'>what it teaches</th>"
            f"<th>minutes</th>{head}</tr>{''.join(rows)}<tr><th colspan=3>minutes in all</th>{total}</tr></table>"
        )
