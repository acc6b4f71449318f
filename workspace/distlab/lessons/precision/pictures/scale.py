"""The scale of the loss over updates: where it doubles, and which updates were skipped."""

import math

from distlab.drawing.colours import INK, RANKS, SOFT, look
from distlab.drawing.figure import Picture, guide_lines, new, require, say


def skipped(records: list[dict]) -> dict[int, list[int]]:
    """The updates that left the weights as they were, by rank."""
    found: dict[int, list[int]] = {}
    for record in sorted(records, key=lambda record: record["step"]):
        steps = found.setdefault(record["rank"], [])
        if not record["moved"]:
            steps.append(record["step"])
    return dict(sorted(found.items()))


def overflowed(records: list[dict]) -> dict[int, list[int]]:
    """The ranks whose own gradients overflowed, by update."""
    found: dict[int, list[int]] = {}
    for record in sorted(records, key=lambda record: (record["step"], record["rank"])):
        if not record["own_finite"]:
            found.setdefault(record["step"], []).append(record["rank"])
    return found


def picture(records: list[dict]) -> Picture:
    """The scale as a line, a cross for each update that was skipped, and above it the ranks that overflowed.

    Args:
        records: of the event `scaled`, each with rank, step, scale, own_finite and moved.
    """
    records = require(records, "scaled")
    one_rank = sorted((record for record in records if record["rank"] == 0), key=lambda record: record["step"])
    scales = {record["step"]: math.log2(record["scale"]) for record in one_rank}
    left_out, guilty = skipped(records)[0], overflowed(records)
    said = ", ".join(f"update {step} because of rank {' and '.join(map(str, guilty[step]))}" for step in guilty)
    figure, (axes,) = new(3.2, f"The loss scale over {len(scales)} updates. Skipped: {said or 'none'}.")
    guide_lines(axes)
    axes.step(list(scales), list(scales.values()), where="mid", color=RANKS[0], linewidth=1.8, label="scale")
    if left_out:
        at = [scales[step] for step in left_out]
        axes.plot(left_out, at, "X", color=INK, ms=9, label="update skipped, on all ranks")
    for rank in sorted({rank for ranks in guilty.values() for rank in ranks}):
        mine = {step: ranks.index(rank) for step, ranks in guilty.items() if rank in ranks}
        heights = [scales[step] + 0.5 + 0.4 * place for step, place in mine.items()]
        its, label = look(rank), f"rank {rank}'s own gradients overflowed"
        axes.plot(list(mine), heights, its.marker, color=its.colour, mec=INK, mew=0.5, ms=6.5, label=label)
    low, high = math.floor(min(scales.values())), math.ceil(max(scales.values()))
    axes.set_ylim(low - 0.5, high + 2.2)
    axes.set_yticks(range(low, high + 1), [f"$2^{{{power}}}$" for power in range(low, high + 1)])
    axes.axhline(high, color=SOFT, linewidth=0)
    say(axes, "The scale doubles until something overflows, then it halves", "update", "scale of the loss")
    figure.legend_below(2)
    return figure
