"""In which order the ranks of a pipeline work: a list for each rank, by schedule.

The order is that of torch.distributed.pipelining in torch 2.14. Sources:
gpipe: Huang et al., GPipe, 2019 (arXiv 1811.06965). 1f1b: Narayanan et al., PipeDream, 2019
(arXiv 1806.03377). interleaved: Narayanan et al., Megatron-LM, 2021 (arXiv 2104.04473).
zero-bubble: Qi et al., Zero bubble pipeline parallelism, 2023 (arXiv 2401.10241), the V of its section 6.
"""

from collections import Counter
from dataclasses import dataclass

FORWARD, BACKWARD, INPUT, WEIGHTS = "forward", "backward", "backward input", "backward weights"
STAGES_PER_RANK = {"gpipe": 1, "1f1b": 1, "interleaved": 2, "zero-bubble": 2}


@dataclass(frozen=True)
class Work:
    """A piece of work: kind ("forward", "backward", "backward input" or "backward weights"), stage, microbatch."""

    kind: str
    stage: int
    microbatch: int


def order(schedule: str, ranks: int, microbatches: int) -> list[list[Work]]:
    """Each rank's work, in order.

    Raises:
        ValueError: there is no such schedule, or it does not allow these numbers.
    """
    _require_allowed(schedule, ranks, microbatches)
    return [_PLANS[schedule](rank, ranks, microbatches) for rank in range(ranks)]


def stages_per_rank(schedule: str) -> int:
    """How many stages a rank has.

    Raises:
        ValueError: there is no such schedule.
    """
    if schedule not in STAGES_PER_RANK:
        raise ValueError(f"no schedule {schedule!r}: use one of {', '.join(STAGES_PER_RANK)}")
    return STAGES_PER_RANK[schedule]


def _require_allowed(schedule: str, ranks: int, microbatches: int) -> None:
    stages_per_rank(schedule)
    if ranks < 1 or microbatches < 1:
        raise ValueError(f"{ranks} ranks and {microbatches} microbatches: a pipeline needs 1 or more of each")
    if schedule == "1f1b" and microbatches < ranks:
        raise ValueError(f"1f1b needs a microbatch for each of its {ranks} ranks, not {microbatches}: use more")
    if schedule == "interleaved" and microbatches % ranks:
        raise ValueError(
            f"interleaved goes round in turns of {ranks} ranks, and {microbatches} microbatches "
            f"are no multiple of that: use {ranks * max(1, microbatches // ranks)}"
        )


def _numbered(pieces: list[tuple[str, int]]) -> list[Work]:
    """Work from kinds and stages: each stage takes microbatches one after the other."""
    counted: Counter = Counter()
    work = []
    for kind, stage in pieces:
        work.append(Work(kind, stage, counted[kind, stage]))
        counted[kind, stage] += 1
    return work


def _gpipe(rank: int, ranks: int, microbatches: int) -> list[Work]:
    return _numbered([(FORWARD, rank)] * microbatches + [(BACKWARD, rank)] * microbatches)


def _alternating(forwards: list[tuple[str, int]], backwards: list[tuple[str, int]], ahead: int) -> list[Work]:
    """Some forwards ahead, then a forward and a backward in turn, then the backwards that are left."""
    pairs = zip(forwards[ahead:], backwards, strict=False)
    left = backwards[len(forwards) - ahead :]
    return _numbered([*forwards[:ahead], *(piece for pair in pairs for piece in pair), *left])


def _1f1b(rank: int, ranks: int, microbatches: int) -> list[Work]:
    return _alternating([(FORWARD, rank)] * microbatches, [(BACKWARD, rank)] * microbatches, ranks - 1 - rank)


def _interleaved(rank: int, ranks: int, microbatches: int) -> list[Work]:
    early, late = rank, ranks + rank
    rounds = microbatches // ranks
    forwards = [(FORWARD, stage) for stage in (early, late) for _ in range(ranks)] * rounds
    backwards = [(BACKWARD, stage) for stage in (late, early) for _ in range(ranks)] * rounds
    ahead = min(ranks + 2 * (ranks - 1 - rank), len(forwards))
    return _alternating(forwards, backwards, ahead)


def _zero_bubble(rank: int, ranks: int, microbatches: int) -> list[Work]:
    # The stage on the way down the V, and the one on the way up.
    down, up = rank, 2 * ranks - 1 - rank
    # Too few microbatches do not fill the V: make the order of enough, and leave out the others at the end.
    full, after = max(microbatches, 2 * ranks - 1), ranks - rank
    turn = [(INPUT, down), (WEIGHTS, down), (FORWARD, up), (INPUT, up), (WEIGHTS, up)]
    with_forward = full - (2 * ranks - 1 - rank)
    pieces = [
        *[(FORWARD, down)] * (2 * after - 1),
        *[(FORWARD, up), (FORWARD, down)] * rank,
        *[(FORWARD, up), (INPUT, up), (WEIGHTS, up)] * after,
        *[(FORWARD, down), *turn] * with_forward,
        *turn * (full - ranks - with_forward),
        *[(INPUT, down), (INPUT, up)] * rank,
        *[(INPUT, down), (WEIGHTS, down)] * after,
        *[(WEIGHTS, up)] * rank,
        *[(WEIGHTS, down)] * rank,
    ]
    return [work for work in _numbered(pieces) if work.microbatch < microbatches]


_PLANS = {"gpipe": _gpipe, "1f1b": _1f1b, "interleaved": _interleaved, "zero-bubble": _zero_bubble}
