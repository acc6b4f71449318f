"""When each rank's gradients were ready and which of them travelled together: one step of Horovod.

Draws what Horovod itself wrote to its timeline, as `lessons.horovod.trace` reads it.
"""

from collections.abc import Sequence
from typing import Any

from matplotlib.axes import Axes
from matplotlib.lines import Line2D
from matplotlib.patches import Patch

from distlab.drawing import lanes
from distlab.drawing.colours import INK, PALE, PAPER, SOFT, look
from distlab.drawing.figure import Picture, guide_lines, new, say
from distlab.drawing.units import words_of_size
from distlab.lessons.horovod import trace
from distlab.lessons.horovod.trace import Trip
from distlab.measure.trace import Interval, merged, rows

NEGOTIATION, COPIES, REDUCE = "negotiation", "copies", "all-reduce"
FACES: dict[str, dict[str, Any]] = {
    NEGOTIATION: {"facecolor": PAPER, "edgecolor": SOFT, "hatch": "....", "linewidth": 0.8},
    COPIES: {"facecolor": INK, "edgecolor": INK, "linewidth": 1.2},
    REDUCE: {"facecolor": PALE, "edgecolor": INK, "linewidth": 0.8},
}
HEIGHT = 0.7
# More lanes than these get no names of their own, and more all-reduces are not all told in words.
NAMED, TOLD = 24, 8
# Inches that a number takes.
NUMBER = 0.16


def _own(trips: Sequence[Trip], kind: str) -> list[Interval]:
    """The intervals of one all-reduce's tensors, of one kind."""
    if kind == NEGOTIATION:
        return [trip.negotiate for trip in trips if trip.negotiate]
    if kind == REDUCE:
        return [trip.reduce for trip in trips]
    return [copy for trip in trips for copy in (trip.copy_in, trip.copy_out) if copy]


def milliseconds(step: Sequence[Trip], kind: str) -> float:
    """How long any tensor of the step was at it; kind is 'negotiation', 'copies' or 'all-reduce'."""
    return sum(end - begin for begin, end in merged(_own(step, kind)))


def _ready(axes: Axes, step: Sequence[Trip], zero: float) -> None:
    for row, trip in enumerate(step):
        begin, end = (at - zero for at in (trip.begin, trip.reduce[0]))
        axes.plot([begin, end], [row, row], color=SOFT, linewidth=0.8, zorder=1)
        axes.broken_barh([(end, trip.reduce[1] - trip.reduce[0])], (row - 0.3, 0.6), **FACES[REDUCE])
        for rank, at in trip.ready.items():
            its = look(rank)
            # Ranks that are ready at the same moment must all be seen.
            style: dict[str, Any] = {"marker": its.marker, "color": its.colour, "ms": 7 - 0.9 * rank}
            axes.plot([at - zero], [row], linestyle="", mec=INK, mew=0.5, zorder=2 + rank, **style)
    lanes.lay(axes, [trip.tensor for trip in step])
    crowded = len(step) > NAMED
    if crowded:
        axes.set_yticks([])
    guide_lines(axes, "x")
    known = any(trip.ready for trip in step)
    title = f"When rank 0 heard that {'each' if known else 'any'} rank is ready, and when the tensor travelled"
    say(axes, title, None, f"{len(step)} tensors" if crowded else None)


def _sent(axes: Axes, groups: Sequence[Sequence[Trip]], zero: float, inch: float) -> None:
    kinds = (NEGOTIATION, COPIES, REDUCE)
    for lane, kind in enumerate(kinds):
        bars = [(begin, end, trips) for trips in groups for begin, end in merged(_own(trips, kind))]
        bars.sort(key=lambda bar: bar[0])
        # All-reduces go one after the other; what goes before them overlaps.
        parts = rows([bar[:2] for bar in bars])
        height = HEIGHT / (1 + max(parts, default=0))
        for (begin, end, trips), part in zip(bars, parts, strict=True):
            bottom = lane - HEIGHT / 2 + part * height
            axes.broken_barh([(begin - zero, end - begin)], (bottom, height), **FACES[kind])
            if kind == REDUCE:
                free = min([later for later, *_ in bars if later > begin], default=begin + inch) - end
                fits = end - begin > NUMBER * inch
                place = (begin + end) / 2 if fits else end + NUMBER / 2 * inch
                if fits or free > NUMBER * inch:
                    lanes.number(axes, (place - zero, bottom + height / 2), len(trips))
    step = [trip for trips in groups for trip in trips]
    lanes.lay(axes, [f"{kind}\n{milliseconds(step, kind):.3g} ms" for kind in kinds])
    guide_lines(axes, "x")
    title = f"{_count(len(step), 'tensor')} in {_count(len(groups), 'all-reduce')}: the number of tensors in each"
    say(axes, title, "milliseconds since rank 0 heard the first word of this step", None)


def _count(number: int, word: str) -> str:
    return f"{number} {word}{'s' * (number != 1)}"


def _alt(groups: Sequence[Sequence[Trip]], zero: float) -> str:
    said = []
    for trips in groups[:TOLD]:
        size = f", {words_of_size(sum(trip.size for trip in trips))}" if all(trip.size for trip in trips) else ""
        begin, end = (at - zero for at in trips[0].reduce)
        last = {rank: max(trip.ready[rank] for trip in trips) - zero for rank in trips[0].ready}
        heard = ", ".join(f"rank {rank} {at:.1f}" for rank, at in last.items())
        negotiated = f", ready at {heard} ms" if heard else ""
        said.append(f"{_count(len(trips), 'tensor')}{size}{negotiated}, all-reduce from {begin:.1f} to {end:.1f} ms")
    if len(groups) > TOLD:
        said.append(f"and {_count(len(groups) - TOLD, 'all-reduce')} more")
    step = [trip for trips in groups for trip in trips]
    kinds = ", ".join(f"{kind} {milliseconds(step, kind):.3g} ms" for kind in FACES)
    return f"One training step in Horovod's timeline. In order: {'; '.join(said)}. In all: {kinds}."


def picture(step: Sequence[Trip]) -> Picture:
    """Above a lane for each tensor with a marker for each rank, below the all-reduces and what went before.

    Args:
        step: one of `trace.steps`, such as `trace.quickest` picks.

    Raises:
        ValueError: the step is empty.
    """
    if not step:
        raise ValueError("no trips to draw: pass a step of trace.steps(...)")
    step = sorted(step, key=lambda trip: (trip.begin, trip.group))
    groups = trace.groups(step)
    zero, end = min(trip.begin for trip in step), max(trip.end for trip in step)
    above = max(1.2, len(step) * (0.26 if len(step) <= NAMED else 0.07))
    ratios: dict[str, Any] = {"height_ratios": [above, 1.25]}
    figure, (top, below) = new(above + 2.4, _alt(groups, zero), rows=2, sharex=True, **ratios)
    _ready(top, step, zero)
    _sent(below, groups, zero, (end - zero) / 6)
    below.set_xlim(-0.02 * (end - zero), 1.04 * (end - zero))
    ranks = sorted({rank for trip in step for rank in trip.ready})
    looks = {rank: look(rank) for rank in ranks}
    handles: list[Line2D | Patch] = [
        Line2D([], [], linestyle="", marker=its.marker, color=its.colour, mec=INK, mew=0.5, label=f"rank {rank} ready")
        for rank, its in looks.items()
    ]
    handles += [Patch(label=kind, **face) for kind, face in FACES.items()]
    figure.legend(handles=handles, loc="outside lower center", ncols=4, frameon=False, fontsize=9)
    return figure
