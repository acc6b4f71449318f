"""What a check hands back, and how it reads."""

import textwrap
from collections.abc import Collection, Iterable
from dataclasses import dataclass

from distlab.launch import RunResult

MARKS = {"holds": "✔", "broken": "✘", "open": "·"}
MOST_PRINTED = 20
# Fits a notebook's page, where nobody can widen the window.
WIDTH = 100


@dataclass(frozen=True)
class Requirement:
    """One thing that must hold.

    Attributes:
        name: that of the function.
        text: what must hold, perhaps after the TODO that is about it: `TODO 1: the ranks join one group`.
        state: 'holds', 'broken', or 'open': cannot be judged before an earlier one holds.
        mistake: one sentence when broken.
    """

    name: str
    text: str
    state: str
    mistake: str = ""

    @property
    def short(self) -> str:
        """The TODO that it is about, else the whole text."""
        todo, colon, _ = self.text.partition(":")
        return todo if colon and todo.startswith("TODO") else self.text


@dataclass
class CheckResult:
    """What holds and what does not.

    Attributes:
        run: the run of the file on the hosts, with all that its ranks reported; None when Python cannot read it.
    """

    exercise: str
    file: str
    requirements: list[Requirement]
    run: RunResult | None = None

    @property
    def ok(self) -> bool:
        """True when every requirement holds."""
        return all(requirement.state == "holds" for requirement in self.requirements)

    @property
    def broken(self) -> list[Requirement]:
        """Requirements that do not hold, the one to mend first in front."""
        return [requirement for requirement in self.requirements if requirement.state == "broken"]

    @property
    def mistakes(self) -> list[str]:
        """One sentence for each of them."""
        return [requirement.mistake for requirement in self.broken]

    @property
    def printed(self) -> list[tuple[int, str]]:
        """What the file printed, as (rank, line), by rank."""
        return sorted(self.run.output, key=lambda line: line[0]) if self.run else []

    def __str__(self) -> str:
        return "\n".join([self._head(), *self._lines(), *self._says(), "", *self._advice()])

    def __repr__(self) -> str:
        held = sum(requirement.state == "holds" for requirement in self.requirements)
        return f"<{self.exercise}: {held} of {len(self.requirements)} hold>"

    def _ipython_display_(self) -> None:
        # check() has printed it; a notebook would show the last value of a cell once more.
        pass

    def _head(self) -> str:
        hosts: dict[str, list[str]] = {}
        for end in self.run.ranks if self.run else []:
            hosts.setdefault(end.host, []).append(str(end.rank))
        where = " and ".join(f"{host} ({plural('rank', ranks)})" for host, ranks in hosts.items())
        return f"{self.exercise}: {self.file}" + (f" on {where}" if where else "")

    def _lines(self) -> list[str]:
        return [f"  {MARKS[requirement.state]} {requirement.text}" for requirement in self.requirements]

    def _says(self) -> list[str]:
        if not self.run or not self.printed:
            return []
        host = {end.rank: end.host for end in self.run.ranks}
        lines = [f"  {host[rank]}:{rank} | {text}" for rank, text in self.printed[:MOST_PRINTED]]
        more = len(self.printed) - MOST_PRINTED
        return ["Your file printed:", *lines, *([f"  and {more} lines more"] if more > 0 else [])]

    def _advice(self) -> list[str]:
        if self.ok:
            return [f"All {len(self.requirements)} hold: this exercise is done."]
        first, *others = self.broken
        # A sentence begins with a capital, but a file keeps its name.
        start = first.mistake[0] if first.mistake.startswith(self.file) else first.mistake[0].upper()
        # Broken at words only: a path or a piece of code stays whole.
        lines = textwrap.wrap(f"{start}{first.mistake[1:]}.", WIDTH, break_long_words=False, break_on_hyphens=False)
        if others:
            lines.append(f"Then: {listed([requirement.short for requirement in others])}.")
        return lines


def listed(items: Iterable[object]) -> str:
    """`0`, `0 and 2`, `0, 1 and 2`."""
    *front, last = map(str, items)
    return f"{', '.join(front)} and {last}" if front else last


def plural(word: str, items: Collection[object]) -> str:
    """`rank 0`, `ranks 0 and 2`, `ranks 0, 1 and 2`."""
    return f"{word}{'s' if len(items) > 1 else ''} {listed(items)}"
