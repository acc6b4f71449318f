"""What the tests of all exercises share: an edited solution, and what its check says.

    edited("ddp", tmp_path, ("rank == 0", "True"))    # the solution with one mistake in it
    assert_named(check("ddp", file=...), "saves", "every rank wrote the checkpoint, * at the same time")

A phrase is a piece of a sentence; a * in it stands for a number, or for any other words.
"""

import copy
from collections.abc import Callable, Collection
from pathlib import Path

from distlab.checks import CheckResult, Requirement
from distlab.checks.checking import folder_of
from distlab.checks.engine import Job, judge
from distlab.runs import WORKSPACE


def edited(exercise: str, folder: Path, *edits: tuple[str, str]) -> Path:
    """The solution of an exercise as mine.py in a folder, with some text replaced, each exactly once."""
    text = (WORKSPACE / "solutions" / f"{exercise}.py").read_text()
    for old, new in edits:
        assert text.count(old) == 1, f"{old!r} is {text.count(old)} times in the solution"
        text = text.replace(old, new)
    path = folder / "mine.py"
    path.write_text(text)
    return path


def line_of(path: Path, code: str) -> int:
    """The number of the first line that has this code."""
    return next(number for number, line in enumerate(path.read_text().splitlines(), 1) if code in line)


def one_line(text: str) -> str:
    """A text as it was before it was broken into lines."""
    return " ".join(text.split())


def states(result: CheckResult) -> dict[str, str]:
    """The state of each requirement, by name, in order."""
    return {one.name: one.state for one in result.requirements}


def assert_says(sentence: str, phrase: str) -> None:
    """The phrase is in the sentence."""
    rest = sentence
    for part in phrase.split("*"):
        assert part in rest, f"{part!r} is not in {sentence!r}"
        rest = rest[rest.index(part) + len(part) :]


def assert_named(result: CheckResult, requirement: str, phrase: str, may_be_open: Collection[str] = ()) -> None:
    """One mistake was found, of this requirement and in these words; only what rests on it may be open."""
    assert not result.ok, f"nothing was found, though {requirement} is broken"
    assert [one.name for one in result.broken] == [requirement], result.mistakes
    assert_says(result.mistakes[0], phrase)
    still_open = {name for name, state in states(result).items() if state == "open"}
    assert still_open <= set(may_be_open), f"open as well: {sorted(still_open - set(may_be_open))}"
    said = one_line(str(result))
    assert said.endswith(f"{one_line(result.mistakes[0][1:])}."), said


def broken_when(exercise: str, solved: CheckResult, alter: Callable[[Job], None]) -> list[Requirement]:
    """The requirements that break when what the ranks reported of the solution is altered."""
    job = Job(copy.deepcopy(solved.run), trouble=None)
    alter(job)
    return [one for one in judge(folder_of(exercise) / "requirements.py", job) if one.state == "broken"]
