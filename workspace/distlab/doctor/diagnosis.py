"""One thing that the doctor, or the instructor's preflight, looked at.

`classroom` uses it on a host with nothing but Python, so this imports only the standard library.
"""

import os
import sys
import textwrap
from dataclasses import asdict, dataclass

# The width of a notebook's output.
COLUMNS = 88
COLOURS = {"fine": "32", "note": "33", "wrong": "1;31"}


@dataclass(frozen=True)
class Diagnosis:
    """`state` is 'fine', 'note' (works, but know this) or 'wrong' (a lesson cannot run)."""

    name: str
    state: str
    text: str
    remedy: str = ""

    @property
    def ok(self) -> bool:
        """False when a lesson cannot run."""
        return self.state != "wrong"

    def as_dict(self) -> dict[str, str]:
        """For JSON."""
        return asdict(self)


def _has_colours() -> bool:
    # A notebook shows colours although isatty() is false there.
    notebook = type(sys.stdout).__module__.startswith("ipykernel")
    return (sys.stdout.isatty() or notebook) and not os.environ.get("NO_COLOR")


def _wrap(text: str, first: str, indent: str) -> str:
    # A command or a path must stay whole, to be copied.
    return textwrap.fill(
        text,
        COLUMNS,
        initial_indent=first,
        subsequent_indent=indent,
        break_long_words=False,
        break_on_hyphens=False,
    )


def print_diagnoses(diagnoses: list[Diagnosis], good: str = "Every lesson here can run.") -> None:
    """A table, and below it what to do; `good` is the last line when nothing is wrong."""
    coloured = _has_colours()
    names = max((len(diagnosis.name) for diagnosis in diagnoses), default=0)
    for diagnosis in diagnoses:
        first = f"{diagnosis.state:{len('wrong')}}  {diagnosis.name:{names}}  "
        row = _wrap(diagnosis.text, first, " " * len(first))
        if coloured:
            row = f"\033[{COLOURS[diagnosis.state]}m{diagnosis.state}\033[0m{row[len(diagnosis.state) :]}"
        print(row)
    for diagnosis in diagnoses:
        if diagnosis.remedy:
            print(_wrap(f"{diagnosis.name}: {diagnosis.remedy}", "", ""))
    wrong = sum(not diagnosis.ok for diagnosis in diagnoses)
    print(good if not wrong else f"{wrong} of {len(diagnoses)} checks went wrong.")
