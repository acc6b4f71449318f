"""What the tests of all exercises share: an edited solution, and what its check says.

    edited("ddp", tmp_path, ("rank == 0", "True"))    # the solution with one mistake in it
    assert_named(check("ddp", file=...), "saves", "every rank wrote the checkpoint, * at the same time")

A phrase is a piece of a sentence; a * in it stands for a number, or for any other words.
"""

import copy
from collections.abc import Callable, Collection
from importlib import import_module
from pathlib import Path

from distlab import course
from distlab.checks import CheckResult, Requirement, mistake
from distlab.checks.checking import requirements_of
from distlab.checks.engine import Observed
from distlab.checks.mistake import Mistake
from distlab.runs import WORKSPACE


def mistakes() -> list[tuple[str, Mistake]]:
    """Every planted mistake of every lesson, as (exercise, mistake)."""
    lessons = {name: lesson.exercise for name, lesson in course.folders().items() if lesson.exercise}
    modules = {exercise: import_module(f"distlab.lessons.{name}.check.mistakes") for name, exercise in lessons.items()}
    return [(exercise, planted) for exercise, module in modules.items() for planted in module.MISTAKES]


def solution(exercise: str) -> str:
    """The text of its solution."""
    return (WORKSPACE / "solutions" / f"{exercise}.py").read_text()


def edited(exercise: str, folder: Path, *edits: tuple[str, str]) -> Path:
    """The solution of an exercise as mine.py in a folder, with some text replaced, each exactly once."""
    path = folder / "mine.py"
    path.write_text(mistake.plant(solution(exercise), edits))
    return path


def line_of(path: Path, code: str) -> int:
    """The number of the first line that has this code."""
    return mistake.line_of(path.read_text(), code)


def one_line(text: str) -> str:
    """A text as it was before it was broken into lines."""
    return " ".join(text.split())


def states(result: CheckResult) -> dict[str, str]:
    """The state of each requirement, by name, in order."""
    return {requirement.name: requirement.state for requirement in result.requirements}


def assert_says(sentence: str, phrase: str) -> None:
    """The phrase is in the sentence."""
    rest = sentence
    for part in phrase.split("*"):
        assert part in rest, f"{part!r} is not in {sentence!r}"
        rest = rest[rest.index(part) + len(part) :]


def assert_named(result: CheckResult, requirement: str, phrase: str, may_be_open: Collection[str] = ()) -> None:
    """One mistake was found, of this requirement and in these words; only what rests on it may be open.

    Args:
        may_be_open: what cannot be judged either, beside the requirements that need the broken one.
    """
    assert not result.ok, f"nothing was found, though {requirement} is broken"
    assert [broken.name for broken in result.broken] == [requirement], result.mistakes
    assert_says(result.mistakes[0], phrase)
    still_open = {name for name, state in states(result).items() if state == "open"}
    allowed = requirements_of(result.exercise).resting_on(requirement) | set(may_be_open)
    assert still_open <= allowed, f"open as well: {sorted(still_open - allowed)}"
    said = one_line(str(result))
    assert said.endswith(f"{one_line(result.mistakes[0][1:])}."), said


def assert_told(planted: Mistake, result: CheckResult) -> None:
    """The check found this mistake and says what it has to say of it."""
    text = mistake.plant(solution(result.exercise), planted.edits)
    assert_named(result, planted.requirement, planted.sentence(text), planted.may_be_open)


def broken_when(exercise: str, solved: CheckResult, alter: Callable[[Observed], None]) -> list[Requirement]:
    """The requirements that break when what the ranks reported of the solution is altered."""
    observed = Observed(copy.deepcopy(solved.run), trouble=None)
    alter(observed)
    judged = requirements_of(exercise).judge(observed)
    return [requirement for requirement in judged if requirement.state == "broken"]
