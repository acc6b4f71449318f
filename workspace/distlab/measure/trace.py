"""From a profiler's events to spans of work: which kind, when, and how much of it overlaps.

A span is a dict: kind ('forward', 'backward', 'communication'), name, start and end in
milliseconds since the step began. Nothing here imports torch; events are recognised by their names.
"""

import json
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Protocol

STEP = "step"
FORWARD = "DistributedDataParallel.forward"
BACKWARD = "autograd::engine::evaluate_function: "
# Copies a gradient into its bucket and starts the all-reduce of a full one: no computing.
INTO_BUCKET = BACKWARD + "torch::autograd::AccumulateGrad"
# On CPU, gloo's worker threads; on GPU, NCCL's kernels. Both bear the collective's name.
COLLECTIVES = ("gloo:", "ncclDevKernel_", "ncclKernel_")

Interval = tuple[float, float]


class TimeRange(Protocol):
    """Start and end in microseconds."""

    start: float
    end: float


class Event(Protocol):
    """What is read of torch.autograd.profiler_util.FunctionEvent."""

    name: str
    time_range: TimeRange
    device_type: object


def kind_of(name: str) -> str | None:
    """The kind of work an event stands for, or None for what is inside another one."""
    if name == FORWARD:
        return "forward"
    if name.startswith(BACKWARD) and name != INTO_BUCKET:
        return "backward"
    if name.startswith(COLLECTIVES):
        return "communication"
    return None


def spans(events: Iterable[Event]) -> list[dict]:
    """The spans of one profiled step, ordered by start.

    Kernels on a GPU run later than the calls that start them, so they are what counts there. A
    kernel belongs to backward when it begins after the CPU has begun with backward.

    Raises:
        ValueError: no event is named 'step'.
    """
    events = list(events)
    step = next((event for event in events if event.name == STEP and not _on_gpu(event)), None)
    if step is None:
        raise ValueError(f"no event named {STEP!r}: profile inside record_function({STEP!r})")
    made = []
    for kind, event in _kinds(events):
        start, end = ((at - step.time_range.start) / 1000 for at in (event.time_range.start, event.time_range.end))
        made.append({"kind": kind, "name": event.name.removeprefix(BACKWARD), "start": start, "end": end})
    return sorted(made, key=lambda span: span["start"])


def _on_gpu(event: Event) -> bool:
    return "CUDA" in str(event.device_type)


def _is_kernel(event: Event) -> bool:
    # The profiler repeats the CPU's annotations on the GPU; copies are no computing.
    other = (STEP, FORWARD, BACKWARD, "nccl:", "gloo:", "Memcpy", "Memset", "Optimizer.")
    return _on_gpu(event) and not event.name.startswith(other)


def _kinds(events: list[Event]) -> Iterator[tuple[str, Event]]:
    kernels = [event for event in events if _is_kernel(event)]
    cpu = [event for event in events if not _on_gpu(event)]
    turn = min((event.time_range.start for event in cpu if event.name.startswith(BACKWARD)), default=float("inf"))
    for event in cpu:
        kind = kind_of(event.name)
        # With gloo the CPU communicates also for ranks that compute on a GPU.
        if kind == "communication" or (kind and not kernels):
            yield kind, event
    for event in kernels:
        yield kind_of(event.name) or ("forward" if event.time_range.start < turn else "backward"), event


def merged(intervals: Iterable[Interval]) -> list[Interval]:
    """The same time without overlaps.

    >>> merged([(0, 2), (1, 3), (5, 6)])
    [(0, 3), (5, 6)]
    """
    result: list[Interval] = []
    for start, end in sorted(intervals):
        if result and start <= result[-1][1]:
            result[-1] = (result[-1][0], max(end, result[-1][1]))
        else:
            result.append((start, end))
    return result


def common(first: Iterable[Interval], second: Iterable[Interval]) -> float:
    """How long both last at the same time.

    >>> common([(0, 4)], [(1, 2), (3, 9)])
    2
    """
    second = merged(second)
    return sum(max(0, min(end, b) - max(start, a)) for start, end in merged(first) for a, b in second)


def intervals(trace: list[dict], kind: str) -> list[Interval]:
    """Start and end of all spans of a kind."""
    return [(span["start"], span["end"]) for span in trace if span["kind"] == kind]


def overlap(trace: list[dict]) -> float:
    """The share of communication during which backward computes too: 0 to 1; NaN without any communication."""
    talk = merged(intervals(trace, "communication"))
    total = sum(end - start for start, end in talk)
    return common(talk, intervals(trace, "backward")) / total if total else float("nan")


def sent_early(trace: list[dict]) -> int:
    """How many collectives began before the last piece of backward did."""
    last = max(start for start, _ in intervals(trace, "backward"))
    return sum(start < last for start, _ in intervals(trace, "communication"))


def rows(spans: list[Interval]) -> list[int]:
    """A row for each interval, so that no two in a row overlap; as few rows as it takes.

    Args:
        spans: ordered by start.

    >>> rows([(0, 2), (1, 3), (2, 4)])
    [0, 1, 0]
    """
    free: list[float] = []
    taken = []
    for start, end in spans:
        row = next((number for number, busy in enumerate(free) if busy <= start), len(free))
        free[row : row + 1] = [end]
        taken.append(row)
    return taken


def write(records: list[dict], path: Path) -> Path:
    """Write the spans of all ranks into one file that ui.perfetto.dev and chrome://tracing open.

    A process for each rank. Of `timeline` it has a lane for computing, and as many for communication as
    it takes; of `work` a lane for each stage, with names such as "forward 3" for microbatch 3.

    Args:
        records: of the event `timeline` or `work`, of one step: rank, host (none if simulated) and
            spans, in milliseconds.
    """
    events = []
    for record in sorted(records, key=lambda record: record["rank"]):
        rank, lanes = record["rank"], _by_stage if "stages" in record else _by_kind
        events.append(_name("process_name", rank, 0, f"rank {rank}" + f" on {record.get('host')}" * ("host" in record)))
        events.append(_name("process_sort_index", rank, 0, rank))
        names, placed = lanes(record["spans"])
        events += [_name("thread_name", rank, lane, name) for lane, name in names.items()]
        for lane, name, span in placed:
            times = {"ts": span["start"] * 1000, "dur": (span["end"] - span["start"]) * 1000}
            events.append({"ph": "X", "pid": rank, "tid": lane, "cat": span["kind"], "name": name, **times})
    path = Path(path)
    path.write_text(json.dumps({"traceEvents": events, "displayTimeUnit": "ms"}))
    return path


# Lane -> its name, and (lane, name, span) of each span.
Placed = tuple[dict[int, str], list[tuple[int, str, dict]]]


def _by_kind(spans: list[dict]) -> Placed:
    # Concurrent collectives get a row each, or the viewer would nest them.
    free = iter(rows(intervals(spans, "communication")))
    placed = [(1 + next(free) if span["kind"] == "communication" else 0, span["name"], span) for span in spans]
    return {0: "compute", 1: "communication"}, placed


def _by_stage(spans: list[dict]) -> Placed:
    placed = [(span["stage"], f"{span['kind']} {span['microbatch']}", span) for span in spans]
    return {stage: f"stage {stage}" for stage in sorted({span["stage"] for span in spans})}, placed


def _name(what: str, rank: int, lane: int, value: str | int) -> dict:
    key = "sort_index" if what.endswith("sort_index") else "name"
    return {"ph": "M", "name": what, "pid": rank, "tid": lane, "args": {key: value}}
