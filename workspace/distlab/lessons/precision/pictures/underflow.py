"""How many gradients lie below what float16 can hold, without and with a scaled loss."""

import math

from distlab.drawing.colours import INK, PALE, RANKS
from distlab.drawing.figure import Picture, guide_lines, new, require, say

# float16: its smallest number is 2^-24, below 2^-14 it loses precision, and it ends at 65504.
SMALLEST, NORMAL, LARGEST = -24, -14, 16


def counts(records: list[dict], kind: str) -> dict[int, int]:
    """How many gradients of a kind lie between 2^n and 2^(n+1), by n, over all ranks."""
    total: dict[int, int] = {}
    for record in require([record for record in records if record["kind"] == kind], "sizes"):
        for power, count in record["histogram"].items():
            total[int(power)] = total.get(int(power), 0) + count
    return dict(sorted(total.items()))


def share_lost(records: list[dict], way: str, kind: str) -> float:
    """The share of gradients of a kind that became zero, averaged over ranks."""
    shares = [record[kind] for record in require([record for record in records if record["way"] == way], "lost")]
    return sum(shares) / len(shares)


def picture(sizes: list[dict], lost: list[dict], kind: str = "outputs") -> Picture:
    """A histogram of gradients as float16 sees them per scale of the loss, its own range shaded.

    Args:
        sizes: of the event `sizes`, each with kind and histogram.
        lost: of the event `lost`, each with way, scale, and the share lost by kind; only those in float16 are drawn.
    """
    by_power = counts(sizes, kind)
    whole = sum(by_power.values())
    ways = list(
        dict.fromkeys((record["way"], record["scale"]) for record in require(lost, "lost") if "fp16" in record["way"])
    )
    said = "; ".join(f"{way}: {share_lost(lost, way, kind):.1%} become zero" for way, _ in ways)
    figure, panels = new(2.0 * len(ways) + 0.6, f"Sizes of gradients in float16. {said}.", rows=len(ways), sharex=True)
    for axes, (way, scale) in zip(panels, ways, strict=True):
        guide_lines(axes)
        shift = round(math.log2(scale))
        axes.axvspan(SMALLEST, LARGEST, color=PALE, alpha=0.6, zorder=0)
        axes.axvspan(NORMAL, LARGEST, color=PALE, zorder=0)
        for power, count in by_power.items():
            inside = SMALLEST <= power + shift < LARGEST
            colour, hatch = (RANKS[0], "") if inside else (RANKS[1], "////")
            axes.bar(power + shift + 0.5, 100 * count / whole, 0.9, color=colour, hatch=hatch, edgecolor="white")
        axes.set_ylim(0, 1.25 * 100 * max(by_power.values()) / whole)
        top = axes.get_ylim()[1]
        axes.text(SMALLEST + 0.4, 0.9 * top, "fp16 holds these", fontsize=8.5, color=INK)
        words = f"{100 * share_lost(lost, way, kind):.2f} % become zero"
        axes.text(-47, 0.6 * top, words, fontsize=9.5, color=INK)
        last = axes is panels[-1]
        title = f"loss multiplied by {scale:,.0f}: {shift} powers of two to the right"
        if scale == 1:
            title = "as they are: what lies left of the grey is zero in fp16"
        say(axes, title, "size of a gradient" if last else None, "gradients (%)")
    panels[-1].set_xlim(-48, LARGEST + 2)
    marks = range(-48, LARGEST + 1, 8)
    panels[-1].set_xticks(marks, [f"$2^{{{mark}}}$" for mark in marks])
    return figure
