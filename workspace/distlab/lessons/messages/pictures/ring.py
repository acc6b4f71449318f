"""A ring all-reduce step by step: who holds whose numbers, and which chunk is on its way."""

from typing import Any

from matplotlib.axes import Axes
from matplotlib.patches import Patch, Rectangle

from distlab.drawing import lanes
from distlab.drawing.colours import INK, PAPER, SOFT, look
from distlab.drawing.figure import Picture, bare, new, require

COLUMNS = 4
NOTHING = -1


def contributors(value: float, ranks: int) -> list[int]:
    """The ranks whose numbers are in a sum to which rank r gives 10 to the power r.

    >>> contributors(1011, 4)
    [0, 1, 3]
    """
    digits = str(round(value))[::-1]
    return [rank for rank in range(min(ranks, len(digits))) if digits[rank] != "0"]


def _chunk(axes: Axes, row: int, place: int, whose: list[int], travels: bool) -> None:
    wide = 0.84 / max(1, len(whose))
    for part, rank in enumerate(whose):
        its = look(rank)
        face: dict[str, Any] = {"facecolor": its.colour, "hatch": its.hatch, "edgecolor": PAPER, "linewidth": 0.3}
        axes.add_patch(Rectangle((place + 0.08 + part * wide, row - 0.36), wide, 0.72, **face))
    if travels:
        edge: dict[str, Any] = {"facecolor": "none", "edgecolor": INK, "linewidth": 2.2}
        axes.add_patch(Rectangle((place + 0.05, row - 0.41), 0.9, 0.82, **edge))


def _title(number: int, steps: int) -> str:
    if number == steps:
        return "end"
    return f"step {number + 1}: {'add' if 2 * number < steps else 'copy'}"


def picture(steps: list[dict], ends: list[dict]) -> Picture:
    """A panel per step and one for the end: a row per rank, a column per chunk, a stripe per rank in the sum.

    Args:
        steps: records of the event `step`, each with rank, number (from 0), to, chunk and held (what the rank
            held when it sent, one number a chunk, to which rank r gave 10 to the power r).
        ends: records of the event `end`, each with rank and held.
    """
    steps, ends = require(steps, "step"), sorted(require(ends, "end"), key=lambda record: record["rank"])
    ranks, numbers = len(ends), sorted({step["number"] for step in steps})
    whole = sum(len(contributors(value, ranks)) == ranks for end in ends for value in end["held"])
    alt = (
        f"Ring all-reduce of {ranks} ranks in {len(numbers)} steps. In each step a rank sends one chunk to its "
        f"neighbour. At the end {whole} of {ranks * len(ends[0]['held'])} chunks hold numbers of all ranks."
    )
    order: list[int | None] = [*numbers, None]
    if len(numbers) == 2 * (ranks - 1) and ranks == COLUMNS:
        # Steps that add above, steps that copy below.
        order.insert(ranks - 1, NOTHING)
    rows = -(-len(order) // COLUMNS)
    figure, panels = new(rows * (0.28 * ranks + 0.7) + 0.3, alt, rows=rows, columns=COLUMNS)
    for axes, number in zip(panels, order, strict=False):
        if number == NOTHING:
            axes.axis("off")
            continue
        records = ends if number is None else [step for step in steps if step["number"] == number]
        for record in records:
            for place, value in enumerate(record["held"]):
                travels = place == record.get("chunk")
                _chunk(axes, record["rank"], place, contributors(value, ranks), travels)
            if "to" in record:
                words = f"→ {record['to']}"
                axes.text(ranks + 0.1, record["rank"], words, va="center", fontsize=8.5, color=SOFT)
        axes.set_xlim(-0.1, ranks + 0.9)
        first = axes in panels[::COLUMNS]
        lanes.lay(axes, [f"rank {rank}" if first else "" for rank in range(ranks)])
        axes.set_xticks([place + 0.5 for place in range(ranks)], list(map(str, range(ranks))))
        bare(axes)
        axes.tick_params(labelsize=8)
        axes.set_title(_title(len(numbers) if number is None else number, len(numbers)), fontsize=9.5, loc="left")
        if axes in panels[len(panels) - COLUMNS :]:
            axes.set_xlabel("chunk", fontsize=9, color=INK)
    for axes in panels[len(order) :]:
        axes.axis("off")
    handles = [Patch(facecolor=look(rank).colour, label=f"of rank {rank}") for rank in range(min(ranks, 4))]
    handles.append(Patch(facecolor=PAPER, edgecolor=INK, linewidth=2, label="is sent now"))
    figure.legend_below(5, handles=handles, fontsize=8.5)
    return figure
