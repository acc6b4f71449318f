"""What a run hands back."""

import json
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, TypedDict

from distlab.errors import DistlabError

MISSING = object()


@dataclass(frozen=True)
class RankEnd:
    """How one rank ended: 'completed', 'left' early, 'raised', 'killed' or 'stopped'."""

    rank: int
    host: str
    local_rank: int
    how: str
    status: int
    log: str


class RunSummary(TypedDict):
    """What run.json in a run's folder holds, and what `distlab run --json` prints.

    `ranks` has the fields of RankEnd, `metrics` each rank's records by rank, `command` is by host.
    """

    ok: bool
    script: str
    launcher: str
    hosts: list[str]
    ranks: list[dict[str, Any]]
    seconds: float
    metrics: dict[str, list[dict[str, Any]]]
    folder: str
    command: dict[str, str]
    error: str | None


@dataclass
class RunResult:
    """A finished run.

    Attributes:
        metrics: one record per thing a rank reported, each with rank, host and event; made for
            `pandas.DataFrame(result.metrics)`.
        command: what a person would type on each host to start the same ranks.
        seconds: wall time from the call to the last rank's end.
    """

    script: str
    launcher: str
    ok: bool
    hosts: list[str]
    ranks: list[RankEnd]
    seconds: float
    folder: Path
    command: dict[str, str]
    metrics: list[dict[str, Any]] = field(default_factory=list)
    error: str | None = None
    stacks: dict[int, str] = field(default_factory=dict)
    output: list[tuple[int, str]] = field(default_factory=list)

    def records(self, event: str, **where: object) -> list[dict[str, Any]]:
        """Records of one event, in rank order.

        Args:
            where: only records that have all these values, as in `records("epoch", rank=0)`; one that
                lacks a key is left out.
        """
        wanted = {"event": event, **where}.items()
        return [record for record in self.metrics if all(record.get(key, MISSING) == value for key, value in wanted)]

    def last(self, event: str) -> dict[int, dict[str, Any]]:
        """Each rank's last record of one event, by rank."""
        return {record["rank"]: record for record in self.records(event)}

    def text(self, rank: int) -> str:
        """What one rank printed."""
        return "\n".join(text for speaker, text in self.output if speaker == rank)

    def to_json(self) -> str:
        """The RunSummary of this run on one line."""
        per_rank = {
            str(end.rank): [record for record in self.metrics if record["rank"] == end.rank] for end in self.ranks
        }
        return json.dumps(
            RunSummary(
                ok=self.ok,
                script=self.script,
                launcher=self.launcher,
                hosts=self.hosts,
                ranks=[asdict(end) for end in self.ranks],
                seconds=round(self.seconds, 3),
                metrics=per_rank,
                folder=str(self.folder),
                command=self.command,
                error=self.error,
            )
        )

    def show(self) -> None:
        """Print a table of the ranks, and the commands that a person would type."""
        from distlab.launch.table import print_result

        print_result(self)


class RunFailed(DistlabError, RuntimeError):
    """A run that did not end well. `result` holds what there is."""

    def __init__(self, message: str, result: RunResult) -> None:
        super().__init__(message)
        self.result = result
