"""What a rank reports: JSON lines in the run folder, never scraped from what it prints."""

import json
import math
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from distlab.errors import DistlabError
from distlab.runs import run_folder

if TYPE_CHECKING:
    from distlab.process import Placement

FOLDER = "metrics"
OWN_KEYS = ("rank", "host", "time", "event")


class NoRun(DistlabError, RuntimeError):
    """There is no run, so there is no folder for its records."""


class ReportNotWritten(DistlabError, OSError):
    """A record cannot be written; says which file and why."""


def plain(key: str, value: object) -> object:
    """A value as JSON can hold it: tensors and arrays as numbers or lists, NaN and infinity as null."""
    if hasattr(value, "tolist"):
        value = value.tolist()
    if value is None or isinstance(value, (bool, int, str)):
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, Path):
        return str(value)
    if isinstance(value, (list, tuple)):
        return [plain(key, item) for item in value]
    if isinstance(value, dict):
        return {str(name): plain(f"{key}.{name}", item) for name, item in value.items()}
    raise TypeError(f"cannot report {key}, a {type(value).__name__}: give numbers, text, lists, dicts or tensors")


def path_of(rank: int) -> Path:
    """The file of a rank's records in this run.

    Raises:
        NoRun: outside of process.alone() and process.group().
    """
    folder = run_folder()
    if folder is None:
        raise NoRun("there is no run to report to: use process.alone() or process.group() first")
    return folder / FOLDER / f"rank{rank}.jsonl"


def log(me: "Placement", event: str, **values: object) -> None:
    """Write one record of this rank: {rank, host, time (Unix, s), event, **values}.

    `distlab.records` has the fields of the package's own events.

    Raises:
        NoRun: outside of process.alone() and process.group().
        TypeError: a value is no plain type, tensor or array.
        ValueError: a value has the name of one of the record's own keys.
        ReportNotWritten: the message says which file.
    """
    taken = [key for key in OWN_KEYS if key in values]
    if taken:
        raise ValueError(f"{taken[0]!r} is set by report.log itself: use another name")
    record = {"rank": me.rank, "host": me.host, "time": round(time.time(), 3), "event": event}
    record |= {key: plain(key, value) for key, value in values.items()}
    path = path_of(me.rank)
    try:
        # On each rank, since hosts need not share a file system.
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("a") as file:
            file.write(json.dumps(record, allow_nan=False) + "\n")
    except OSError as error:
        why = f"rank {me.rank} on {me.host} cannot report to {path}: {error.strerror}"
        raise ReportNotWritten(error.errno, why) from None


def read(folder: Path | str) -> list[dict[str, Any]]:
    """All records of a run folder, in rank order, each rank's in the order of writing.

    The last line of a rank that was killed while it wrote is left out.

    Raises:
        ValueError: another line is broken; the message says which.
    """
    files = Path(folder, FOLDER).glob("rank*.jsonl")
    ranks = {int(path.stem.removeprefix("rank")): path for path in files}
    records = []
    for _, path in sorted(ranks.items()):
        *whole, _torn = path.read_text().split("\n")
        for number, line in enumerate(whole, 1):
            try:
                records.append(json.loads(line))
            except ValueError:
                raise ValueError(f"{path}, line {number} is no record: {line[:60]!r}") from None
    return records
