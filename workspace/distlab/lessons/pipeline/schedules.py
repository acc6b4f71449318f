"""How long a schedule of a pipeline takes, and what of it is idle: a simulator without torch.

Time follows from each rank's order of work. Records are those of the event `work`, so simulated and
measured steps are counted and drawn by the same code.
"""

from collections import Counter
from collections.abc import Sequence

from distlab.lessons.pipeline.orders import BACKWARD, FORWARD, INPUT, WEIGHTS, Work, order, stages_per_rank
from distlab.measure.trace import merged

# After either of these a stage frees what it kept of a microbatch.
LAST = (BACKWARD, WEIGHTS)


def formula(ranks: int, microbatches: float, stages_per_rank: int = 1) -> float:
    """The share of a step that ranks are idle: (p - 1) / (v m + p - 1), where all stages take the same time.

    It holds for gpipe and 1f1b with one stage per rank, for interleaved with v of them. Megatron-LM (arXiv
    2104.04473, section 2.2) counts idle against busy time: (p - 1) / (v m). zero-bubble has no formula:
    it depends on what forward and backward take.

    >>> formula(4, 4), formula(4, 4, stages_per_rank=2)
    (0.42857142857142855, 0.2727272727272727)
    """
    return (ranks - 1) / (stages_per_rank * microbatches + ranks - 1)


def simulate(
    schedule: str,
    ranks: int,
    microbatches: int,
    forward: float = 1.0,
    backward: float = 2.0,
    message: float = 0.0,
    costs: Sequence[float] | None = None,
    unit: str = "times of one forward",
) -> list[dict]:
    """One step: each piece of work starts when its rank is free and what it needs is there.

    Args:
        forward: time of a forward of one microbatch through all stages of a rank.
        backward: time of its backward; zero-bubble spends half of it on inputs, half on weights.
        message: time from one rank to another; sending keeps no rank from working.
        costs: a number for each stage, by which forward and backward are multiplied; by default
            the stages of a rank share 1 equally. Layers of each stage, for one, if forward is a layer's.
        unit: of these times.

    Returns:
        A record of the event `work` for each rank, with `unit` beside.

    Raises:
        ValueError: as `order` does, or there is not one cost for each stage.
    """
    todo = order(schedule, ranks, microbatches)
    stages = ranks * stages_per_rank(schedule)
    costs = [ranks / stages] * stages if costs is None else list(costs)
    if len(costs) != stages:
        raise ValueError(f"{schedule} on {ranks} ranks has {stages} stages, not {len(costs)}: give a cost for each")
    spans = follow(todo, costs, forward, backward, message)
    whole = {"schedule": schedule, "ranks": ranks, "stages": stages, "microbatches": microbatches, "unit": unit}
    return [{"rank": rank, **whole, "spans": own} for rank, own in enumerate(spans)]


def follow(
    todo: Sequence[Sequence[Work]],
    costs: Sequence[float],
    forward: float = 1.0,
    backward: float = 2.0,
    message: float = 0.0,
) -> list[list[dict]]:
    """The spans of each rank, when it does its list of work in order. Arguments are those of `simulate`.

    Raises:
        RuntimeError: the ranks wait for each other.
    """
    takes = {FORWARD: forward, BACKWARD: backward, INPUT: backward / 2, WEIGHTS: backward / 2}
    home = {work.stage: rank for rank, own in enumerate(todo) for work in own}
    ends: dict[Work, float] = {}
    left, stages = [list(own) for own in todo], len(costs)
    spans: list[list[dict]] = [[] for _ in todo]
    while any(left):
        able = [rank for rank, own in enumerate(left) if own and all(need in ends for need in _needs(own[0], stages))]
        if not able:
            raise RuntimeError(f"every rank waits for another, at {[own[:1] for own in left]}")
        for rank in able:
            work = left[rank].pop(0)
            there = [ends[need] + message * (home[need.stage] != rank) for need in _needs(work, stages)]
            start = max([*there, spans[rank][-1]["end"] if spans[rank] else 0.0])
            ends[work] = start + costs[work.stage] * takes[work.kind]
            spans[rank].append({**vars(work), "start": start, "end": ends[work]})
    return spans


def ideal(records: list[dict]) -> list[dict]:
    """The step that measured records would be if all stages took the same time and messages none.

    Args:
        records: of the event `work`, of one step.
    """
    records = _of_one_step(records)
    first, rows = records[0], [span for record in records for span in record["spans"]]
    share = 1 / (len(records) * first["microbatches"])
    forward = share * sum(span["end"] - span["start"] for span in rows if span["kind"] == FORWARD)
    backward = share * sum(span["end"] - span["start"] for span in rows if span["kind"] != FORWARD)
    whole = first["schedule"], first["ranks"], first["microbatches"]
    return simulate(*whole, forward, backward, unit="milliseconds")


def bubble(records: list[dict]) -> float:
    """The share of a step that ranks are idle, from the first start of any of them to the last end: 0 to 1.

    Args:
        records: of the event `work`, measured or simulated, of one step.

    Raises:
        ValueError: there are none, or they are not those of one step.
    """
    spans = [[(span["start"], span["end"]) for span in record["spans"]] for record in _of_one_step(records)]
    busy = sum(end - start for own in spans for start, end in merged(own))
    starts, ends = zip(*(span for own in spans for span in own), strict=True)
    return 1 - busy / (len(spans) * (max(ends) - min(starts)))


def cases(records: list[dict]) -> dict[tuple[str, int], list[dict]]:
    """(schedule, microbatches) -> the records of its step, from those of many."""
    found: dict[tuple[str, int], list[dict]] = {}
    for record in _given(records):
        found.setdefault((record["schedule"], record["microbatches"]), []).append(record)
    return found


def taken(records: list[dict]) -> list[list[Work]]:
    """Each rank's work in the order in which it was done, as `order` gives it."""
    return [
        [Work(span["kind"], span["stage"], span["microbatch"]) for span in record["spans"]]
        for record in _of_one_step(records)
    ]


def by_device(record: dict) -> list[dict]:
    """Records as of a rank for each stage, from the record of one process that has a stage on each of its devices."""
    stages = sorted({span["stage"] for span in record["spans"]})
    return [record | {"rank": stage, "spans": [s for s in record["spans"] if s["stage"] == stage]} for stage in stages]


def in_flight(records: list[dict]) -> dict[int, int]:
    """Rank -> microbatches of which it holds activations at once, at most; one counts for each stage that holds it.

    A stage holds a microbatch from the start of its forward to the end of its backward.
    """
    return {record["rank"]: _most(record["spans"]) for record in _of_one_step(records)}


def _most(spans: list[dict]) -> int:
    begun = [(span["start"], 1) for span in spans if span["kind"] == FORWARD]
    held = most = 0
    # At one moment, ends (-1) are counted before starts (1).
    for _, change in sorted(begun + [(span["end"], -1) for span in spans if span["kind"] in LAST]):
        held += change
        most = max(most, held)
    return most


def _of_one_step(records: list[dict]) -> list[dict]:
    counted = Counter(record["rank"] for record in _given(records))
    rank, times = counted.most_common(1)[0]
    if times > 1:
        raise ValueError(f"{times} records of rank {rank}: pass those of one step")
    if len(counted) % records[0]["ranks"]:
        raise ValueError(f"ranks that reported: {len(counted)} of {records[0]['ranks']}; pass all records of a step")
    return sorted(records, key=lambda record: record["rank"])


def _needs(work: Work, stages: int) -> list[Work]:
    """What has to be done before, beside the earlier work of the same rank."""
    stage, microbatch = work.stage, work.microbatch
    if work.kind == FORWARD:
        return [Work(FORWARD, stage - 1, microbatch)] if stage else []
    if work.kind == WEIGHTS:
        return [Work(INPUT, stage, microbatch)]
    own = Work(FORWARD, stage, microbatch)
    return [own, Work(work.kind, stage + 1, microbatch)] if stage < stages - 1 else [own]


def _given(records: list[dict]) -> list[dict]:
    # Counting is also for checks, which must not wait until matplotlib is loaded.
    from distlab.drawing.figure import require

    return require(records, "work")
