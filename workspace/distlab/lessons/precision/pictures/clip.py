"""How long the gradient is that the optimizer gets, by the order of clipping and unscaling."""

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
    said = "; ".join(f"{one['way']}: clipping saw {one['seen']:.3g} and left {one['left']:.3g}" for one in records)
    figure, (axes,) = new(0.42 * len(records) + 1.3, f"Length of the clipped gradient. {said}.")
    guide_lines(axes, "x")
    lowest = min(one["left"] for one in records) / 4
    for row, one in enumerate(records):
        right = abs(one["left"] - limit) < 0.05 * limit
        axes.barh(row, one["left"] - lowest, 0.6, left=lowest, color=RANKS[0 if right else 1])
        words = (
            f"{one['left']:.2g}   (clipping saw {one['seen']:,.2g})"
            if one["seen"] < 10
            else (f"{one['left']:.1g}   (clipping saw {one['seen']:,.0f})")
        )
        axes.text(max(one["left"], lowest) * 1.25, row, words, va="center", fontsize=9.5, color=INK)
    axes.axvline(limit, color=INK, linewidth=1, linestyle="--")
    axes.set_xscale("log")
    axes.set_xlim(lowest, limit * 400)
    axes.set_yticks(range(len(records)), [one["way"] for one in records])
    axes.set_ylim(len(records) - 0.5, -0.5)
    say(axes, f"Clip at {limit:g}, before unscaling: the step all but disappears", "length of the gradient", None)
    return figure
