"""How long the gradient is that the optimizer gets, by the order of clipping and unscaling."""

from distlab.drawing import lanes
from distlab.drawing.colours import INK, RANKS
from distlab.drawing.figure import Picture, guide_lines, new, require, say


def picture(records: list[dict]) -> Picture:
    """A bar per way on a logarithmic axis, beside the length at which gradients are clipped.

    Args:
        records: of the event `clipped` and one rank, each with way, limit, seen (length that clipping saw) and
            left (length that the optimizer gets).
    """
    records = require(records, "clipped")
    limit = records[0]["limit"]
    said = "; ".join(
        f"{record['way']}: clipping saw {record['seen']:.3g} and left {record['left']:.3g}" for record in records
    )
    figure, (axes,) = new(0.42 * len(records) + 1.3, f"Length of the clipped gradient. {said}.")
    guide_lines(axes, "x")
    lowest = min(record["left"] for record in records) / 4
    for row, record in enumerate(records):
        right = abs(record["left"] - limit) < 0.05 * limit
        axes.barh(row, record["left"] - lowest, 0.6, left=lowest, color=RANKS[0 if right else 1])
        words = (
            f"{record['left']:.2g}   (clipping saw {record['seen']:,.2g})"
            if record["seen"] < 10
            else (f"{record['left']:.1g}   (clipping saw {record['seen']:,.0f})")
        )
        axes.text(max(record["left"], lowest) * 1.25, row, words, va="center", fontsize=9.5, color=INK)
    axes.axvline(limit, color=INK, linewidth=1, linestyle="--")
    axes.set_xscale("log")
    axes.set_xlim(lowest, limit * 400)
    lanes.lay(axes, [record["way"] for record in records])
    say(axes, f"Clip at {limit:g}, before unscaling: the step all but disappears", "length of the gradient", None)
    return figure
