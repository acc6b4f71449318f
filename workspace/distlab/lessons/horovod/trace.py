"""From the file that HOROVOD_TIMELINE names to the way of each tensor through its all-reduce.

Only rank 0 writes that file. It has a rank's readiness only with HOROVOD_CACHE_CAPACITY=0: otherwise
Horovod remembers tensors and need not negotiate them again. A rank counts as ready when rank 0 hears
of it, once in a cycle, so these moments are no finer than HOROVOD_CYCLE_TIME.
"""

import json
import math
import re
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from distlab.measure.trace import Interval

NEGOTIATE, TRAVEL = "NEGOTIATE_ALLREDUCE", "ALLREDUCE"
# Over gloo, MPI and NCCL.
REDUCES = ("GLOO_ALLREDUCE", "MPI_ALLREDUCE", "NCCL_ALLREDUCE")
COPY_IN, COPY_OUT = "MEMCPY_IN_FUSION_BUFFER", "MEMCPY_OUT_FUSION_BUFFER"
PREFIX = "allreduce."
# What the course's training loop sums once in an epoch.
NO_GRADIENTS = ("totals",)
# What stands before an event.
BETWEEN = re.compile(r"[\[,\s]+")
WIDTHS = {"float16": 2, "bfloat16": 2, "float32": 4, "float64": 8, "uint8": 1, "int8": 1, "int32": 4, "int64": 8}


@dataclass(frozen=True)
class Trip:
    """One tensor's way through one all-reduce; times in milliseconds.

    Attributes:
        group: number of the all-reduce; tensors that travelled together share it.
        ready: rank -> when rank 0 heard that it is ready; empty where a tensor was not negotiated.
        negotiate: from the first rank's word to the last one's.
        queue: from then, or from where Horovod took it up, until it is copied or sent.
        copy_in, copy_out: into the fusion buffer and back; None for a tensor that travels alone.
        size: bytes; None if the file does not say.
    """

    tensor: str
    group: int
    ready: dict[int, float]
    negotiate: Interval | None
    queue: Interval
    copy_in: Interval | None
    reduce: Interval
    copy_out: Interval | None
    size: int | None

    @property
    def begin(self) -> float:
        """When rank 0 first heard of it."""
        return (self.negotiate or self.queue)[0]

    @property
    def end(self) -> float:
        """When the result is where it belongs."""
        return (self.copy_out or self.reduce)[1]

    @property
    def waits(self) -> bool:
        """Its all-reduce began after every rank was ready; False where nobody's readiness is known."""
        return bool(self.ready) and max(self.ready.values()) <= self.reduce[0]


def read(path: Path | str) -> list[dict]:
    """The events of a timeline; one that a killed job left is read as far as it is whole.

    Raises:
        FileNotFoundError: there is no such file.
        ValueError: it is no timeline, or an empty one.
    """
    path = Path(path)
    if not path.is_file():
        raise FileNotFoundError(f"no timeline {path}: rank 0 writes it, on its host, where HOROVOD_TIMELINE says")
    text, events, place = path.read_text(), [], 0
    while found := BETWEEN.match(text, place):
        try:
            event, place = json.JSONDecoder().raw_decode(text, found.end())
        except ValueError:
            break
        events.append(event)
    if not events:
        raise ValueError(f"{path} holds no events of Horovod: did the run get past hvd.init()?")
    return events


def _trip(tensor: str, group: int, ready: dict[int, float], spans: dict[str, Interval], end: dict) -> Trip | None:
    """A tensor's trip from what was seen of it, in microseconds; None when no all-reduce was among that."""
    spans = {name: (begin / 1000, until / 1000) for name, (begin, until) in spans.items()}
    reduce = next((spans[name] for name in REDUCES if name in spans), None)
    if reduce is None:
        return None
    negotiate, copy_in = spans.get(NEGOTIATE), spans.get(COPY_IN)
    queue = (negotiate[1] if negotiate else spans[TRAVEL][0], (copy_in or reduce)[0])
    ready = {rank: at / 1000 for rank, at in sorted(ready.items())}
    return Trip(tensor, group, ready, negotiate, queue, copy_in, reduce, spans.get(COPY_OUT), _size(end))


def _size(end: dict) -> int | None:
    said = end.get("args", {})
    width = WIDTHS.get(said.get("dtype"))
    return width and math.prod(json.loads(said["shape"])) * width


def trips(events: Iterable[dict]) -> list[Trip]:
    """The all-reduces that are in the file from begin to end, in the order in which they ended.

    Args:
        events: as `read` gives them.
    """
    names: dict[int, str] = {}
    # Of each tensor that is on its way: what has begun, who is ready, what has ended, and in which all-reduce.
    begun: dict[int, list[tuple[str, float]]] = defaultdict(list)
    ready: dict[int, dict[int, float]] = defaultdict(dict)
    spans: dict[int, dict[str, Interval]] = defaultdict(dict)
    groups: dict[int, int] = {}
    made, group, leaving = [], 0, True
    for event in events:
        kind, pid = event.get("ph"), event.get("pid")
        if kind == "M" and event["name"] == "process_name" and "name" in event["args"]:
            names[pid] = event["args"]["name"]
        if kind not in ("B", "E", "X") or not names.get(pid, "").startswith(PREFIX):
            continue
        if kind == "X":
            ready[pid].setdefault(int(event["name"]), event["ts"])
        elif kind == "B":
            begun[pid].append((event["name"], event["ts"]))
            if event["name"] in REDUCES:
                # Horovod notes the begin for all tensors of an all-reduce before the end for any.
                group, leaving = group + leaving, False
                groups[pid] = group
        elif begun[pid]:
            name, begin = begun[pid].pop()
            spans[pid][name] = (begin, event["ts"])
            leaving = leaving or name in REDUCES
            if name == TRAVEL:
                tensor = names[pid].removeprefix(PREFIX)
                made.append(_trip(tensor, groups.get(pid, 0), ready.pop(pid, {}), spans.pop(pid), event))
                begun[pid].clear()
    return [trip for trip in made if trip]


def steps(trips: Iterable[Trip], without: Sequence[str] = NO_GRADIENTS) -> list[list[Trip]]:
    """The trips of each training step, in the order of their all-reduces: the n-th of each tensor are step n.

    What is reduced less than half as often as others, such as a sum at the end of an epoch, is left out.

    Args:
        without: tensors that are no gradients.
    """
    by_tensor: dict[str, list[Trip]] = defaultdict(list)
    for trip in trips:
        if trip.tensor not in without:
            by_tensor[trip.tensor].append(trip)
    most = max(map(len, by_tensor.values()), default=0)
    gradients = [own for own in by_tensor.values() if 2 * len(own) >= most]
    return [sorted(step, key=lambda trip: (trip.group, trip.begin)) for step in zip(*gradients, strict=False)]


def groups(step: Iterable[Trip]) -> list[list[Trip]]:
    """Trips by all-reduce, in the order in which these went: each list travelled together."""
    made: dict[int, list[Trip]] = defaultdict(list)
    for trip in sorted(step, key=lambda trip: trip.group):
        made[trip.group].append(trip)
    return list(made.values())


def quickest(steps: Sequence[list[Trip]]) -> list[Trip]:
    """The step that other work disturbed least: from its first word to its last copy it took the shortest.

    Raises:
        ValueError: there is none.
    """
    if not steps:
        raise ValueError("the timeline holds no whole training step: did the run end before its first one?")
    return min(steps, key=lambda step: max(trip.end for trip in step) - min(trip.begin for trip in step))
