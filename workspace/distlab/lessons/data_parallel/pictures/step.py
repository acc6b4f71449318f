"""One training step by DataParallel: what is cut, what is copied, what comes together on the main device."""

from typing import Any

from matplotlib.axes import Axes
from matplotlib.patches import Circle, FancyBboxPatch, Rectangle

from distlab.drawing.colours import INK, PALE, PAPER, SOFT, look
from distlab.drawing.figure import Picture, bare, new, require, say

# Where each stage begins and how wide it is, in cells.
STAGES = {
    "the batch": (0.0, 10.0),
    "1 scatter": (11.6, 3.4),
    "2 replicate": (16.6, 6.4),
    "3 parallel apply": (24.6, 3.4),
    "4 gather": (30.0, 10.0),
    "backward": (41.6, 6.4),
    "sum": (49.4, 6.4),
}
ROW = 2.6
HEADS = {"3 parallel apply": "3 parallel\napply", "4 gather": "4 gather, then the loss"}
# Inches for each cell.
SCALE = 0.118


def _left(stage: str) -> float:
    return STAGES[stage][0]


def _right(stage: str) -> float:
    return sum(STAGES[stage])


def _cells(axes: Axes, stage: str, row: int, samples: list[tuple[int, int]], outputs: bool) -> None:
    """Samples as squares, outputs as discs, coloured by replica, shrunk to the room there is."""
    left, width = STAGES[stage]
    size = min(1.0, width / len(samples))
    for place, (sample, replica) in enumerate(samples):
        its, middle = look(replica), (left + (place + 0.5) * size, row * ROW)
        face: dict[str, Any] = {"facecolor": its.colour, "edgecolor": PAPER, "hatch": its.hatch, "linewidth": 0.8}
        corner = middle[0] - size / 2, middle[1] - size / 2
        axes.add_patch(Circle(middle, 0.48 * size, **face) if outputs else Rectangle(corner, size, size, **face))
        axes.text(*middle, str(sample), ha="center", va="center", fontsize=7, color=its.text)


def _box(axes: Axes, stage: str, row: int, words: str, replica: int, full: bool = True) -> None:
    left, width = STAGES[stage]
    its = look(replica)
    face, ink = (its.colour, its.text) if full else (PAPER, INK)
    axes.add_patch(
        FancyBboxPatch(
            (left + 0.2, row * ROW - 0.7),
            width - 0.4,
            1.4,
            boxstyle="round,pad=0.1,rounding_size=0.3",
            facecolor=face,
            edgecolor=its.colour,
            hatch=its.hatch if full else "",
            linewidth=1.4,
        )
    )
    axes.text(left + width / 2, row * ROW, words, ha="center", va="center", fontsize=7.5, color=ink)


def _arrow(axes: Axes, start: tuple[str, int], end: tuple[str, int]) -> None:
    (stage, row), (next_stage, next_row) = start, end
    ends = (_right(stage) + 0.15, row * ROW), (_left(next_stage) - 0.1, next_row * ROW)
    axes.annotate("", ends[1], ends[0], arrowprops={"arrowstyle": "-|>", "color": SOFT, "lw": 0.9, "mutation_scale": 8})


def _size(number: int) -> str:
    return f"{number / 1000:,.1f} kB"


def picture(record: dict) -> Picture:
    """A row per device, a column per step, arrows for what moves between devices.

    Args:
        record: of the event `step`: batch, samples (a list of sample numbers for each replica),
            weight_bytes, gradients (of one weight, each replica's part) and gradient (their sum).
    """
    (record,) = require([record] if record else [], "step")
    pieces, devices = record["samples"], len(record["devices"])
    batch = [(sample, replica) for replica, piece in enumerate(pieces) for sample in piece]
    shares = ", ".join(f"replica {number}: {len(piece)}" for number, piece in enumerate(pieces))
    alt = (
        f"One training step in columns. A batch of {record['batch']} samples is cut ({shares}), the weights of "
        f"{_size(record['weight_bytes'][0])} are copied to the other devices, outputs are gathered on the main device, "
        "and the gradients of all replicas are added up there."
    )
    figure, (axes,) = new(SCALE * (ROW * devices + 4.0) + 0.35, alt)
    bare(axes)
    for row in range(devices):
        axes.axhspan(row * ROW - 1.15, row * ROW + 1.15, color=PALE, alpha=0.45, lw=0, zorder=0)
    _cells(axes, "the batch", 0, batch, outputs=False)
    _cells(axes, "4 gather", 0, batch, outputs=True)
    _box(axes, "sum", 0, f"{record['gradient']:+.4f}", 0)
    for row, piece in enumerate(pieces):
        own = [(sample, row) for sample in piece]
        _cells(axes, "1 scatter", row, own, outputs=False)
        _cells(axes, "3 parallel apply", row, own, outputs=True)
        words = "the model" if row == 0 else f"copy {_size(record['weight_bytes'][row])}"
        _box(axes, "2 replicate", row, words, row, full=row == 0)
        _box(axes, "backward", row, f"{record['gradients'][row]:+.4f}", row, full=False)
        _arrow(axes, ("the batch", 0), ("1 scatter", row))
        for start, end in (("3 parallel apply", "4 gather"), ("backward", "sum")):
            _arrow(axes, (start, row), (end, 0))
        if row:
            middle = (_left("2 replicate") + _right("2 replicate")) / 2
            axes.annotate(
                "",
                (middle, row * ROW - 0.85),
                (middle, (row - 1) * ROW + 0.85),
                arrowprops={"arrowstyle": "-|>", "color": SOFT, "lw": 0.9, "mutation_scale": 8},
            )
    for stage, (left, width) in STAGES.items():
        words = HEADS.get(stage, stage)
        axes.text(left + width / 2, -1.45, words, ha="center", va="bottom", fontsize=8.5, color=INK)
    middle = (_left("backward") + _right("sum")) / 2
    axes.text(
        middle, (devices - 1) * ROW + 1.25, "gradient of one weight", ha="center", va="top", fontsize=8, color=SOFT
    )
    axes.set_xlim(-0.5, _right("sum") + 0.3)
    axes.set_ylim((devices - 1) * ROW + 2.4, -3.4)
    axes.set_aspect("equal")
    axes.set_xticks([])
    names = [f"device {row}" for row in range(devices)]
    axes.set_yticks([row * ROW for row in range(devices)], [f"{names[0]}\n(main)", *names[1:]])
    say(axes, "One step: the batch is cut, the weights are copied, the gradients are added", None, None)
    return figure
