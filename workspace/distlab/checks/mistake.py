"""Mistakes that people make, as data: what each changes in the solution, and what a check says of it."""

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Mistake:
    """One mistake, planted in the solution of an exercise.

    Attributes:
        edits: (old, new) for each piece of the solution's text that changes; old is in it exactly once.
        requirement: the one that breaks, alone and by this mistake.
        says: a piece of its sentence. A `*` stands for any words, `{line}` for the number of the line `at`.
        at: code in the first of the lines that the sentence may name.
        may_be_open: what cannot be judged either, beside the requirements that need the broken one.
        live: tests run it on ranks each time, and do not judge it by what ranks reported when it was recorded.
        seconds: what its functions may take; a stand-still is told after them.
    """

    name: str
    edits: Sequence[tuple[str, str]]
    requirement: str
    says: str
    at: str | None = None
    may_be_open: tuple[str, ...] = ()
    live: bool = False
    seconds: float = 20.0

    def sentence(self, text: str) -> str:
        """What the check has to say, for the text with the mistake in it."""
        return self.says.replace("{line}", str(line_of(text, self.at))) if self.at else self.says


def plant(text: str, edits: Sequence[tuple[str, str]]) -> str:
    """The text with all edits made.

    Raises:
        ValueError: an old piece is not there exactly once.
    """
    for old, new in edits:
        if text.count(old) != 1:
            raise ValueError(f"{old!r} is {text.count(old)} times in the solution")
        text = text.replace(old, new)
    return text


def line_of(text: str, code: str) -> int:
    """The number of the first line that has this code.

    Raises:
        ValueError: no line has it.
    """
    numbers = [number for number, line in enumerate(text.splitlines(), 1) if code in line]
    if not numbers:
        raise ValueError(f"no line has {code!r}")
    return numbers[0]
