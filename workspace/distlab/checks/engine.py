"""The requirements of an exercise, and what each says of what ranks reported.

    REQUIREMENTS = Requirements()

    @REQUIREMENTS.add(needs=("runs",))
    def saves(observed: Observed) -> str | None:
        '''rank 0 alone saves'''
        writers = [record["rank"] for record in observed.each("trained") if record["saves"]]
        return None if writers == [0] else f"{plural('rank', writers)} wrote the checkpoint: save only if rank == 0"

The first line of the docstring is what must hold. What the function returns is the mistake, in one
sentence, or None when there is none.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from distlab.checks.result import Requirement
from distlab.launch import RunResult


class Open(Exception):
    """Raised by a requirement that cannot be judged from what was observed."""


@dataclass(frozen=True)
class Observed:
    """What requirements judge: the run of the probe, and what kept it from its end."""

    result: RunResult
    trouble: str | None

    def each(self, event: str) -> list[dict[str, Any]]:
        """Each rank's last record of an event, in rank order."""
        return [record for _, record in sorted(self.result.last(event).items())]

    def first(self, event: str) -> dict[str, Any]:
        """The last record of an event by the first rank that has one."""
        return self.each(event)[0]


Judge = Callable[[Observed], str | None]


class Requirements:
    """What must hold of one exercise, in the order in which one would mend it."""

    def __init__(self, hints: Mapping[str, str] | None = None) -> None:
        """Begin without any requirement.

        Args:
            hints: what to do about errors that attendees meet in this exercise, by a part of what they say.
        """
        self.hints = hints or {}
        self._judges: dict[str, Judge] = {}
        self._needs: dict[str, tuple[str, ...]] = {}

    def add(self, needs: Sequence[str] = ()) -> Callable[[Judge], Judge]:
        """Make a function the next requirement; its name is the requirement's.

        Args:
            needs: requirements before it, without which it cannot be judged.

        Raises:
            ValueError: a need is not among those before it, or the name is taken.
        """

        def adds(judge: Judge) -> Judge:
            name = judge.__name__
            if name in self._judges or not set(needs) <= self._judges.keys():
                raise ValueError(f"{name} is there already, or needs one of {', '.join(needs)} that is not before it")
            self._judges[name], self._needs[name] = judge, tuple(needs)
            return judge

        return adds

    @property
    def names(self) -> list[str]:
        """In the order of mending."""
        return list(self._judges)

    def resting_on(self, name: str) -> set[str]:
        """Requirements that cannot be judged before this one holds."""
        found = {name}
        for other, needs in self._needs.items():
            if found & set(needs):
                found.add(other)
        return found - {name}

    def judge(self, observed: Observed) -> list[Requirement]:
        """What holds, what is broken, and what cannot be judged yet.

        Raises:
            RuntimeError: a requirement could not be judged, by its own fault and no mistake of the attendee.
        """
        states: dict[str, str] = {}
        judged = []
        for name, judge in self._judges.items():
            mistake = None
            states[name] = "open"
            if all(states[need] == "holds" for need in self._needs[name]):
                try:
                    mistake = _said(judge, observed)
                    states[name] = "broken" if mistake else "holds"
                except Open:
                    pass
            text = (judge.__doc__ or name).strip().splitlines()[0].rstrip(".")
            judged.append(Requirement(name, text, states[name], mistake or ""))
        return judged


def _said(judge: Judge, observed: Observed) -> str | None:
    own_fault = f"{judge.__name__} in {judge.__module__}: a requirement failed by its own fault"
    try:
        mistake = judge(observed)
    except Open:
        raise
    except Exception as error:
        raise RuntimeError(f"{own_fault}, {type(error).__name__}: {error}") from error
    if mistake is not None and not (isinstance(mistake, str) and mistake):
        raise RuntimeError(f"{own_fault}: it returned {mistake!r}, neither a sentence nor None")
    return mistake
