"""What travels in each microbatch of one update, by the way gradients are accumulated."""

from matplotlib.patches import Rectangle

from distlab.drawing import lanes
from distlab.drawing.colours import INK, PALE, RANKS, SOFT, TEXT_ON_RANKS
from distlab.drawing.figure import Picture, new, require, say


def picture(records: list[dict]) -> Picture:
    """A row per way, a cell per microbatch: dark where gradients travel, with the kilobytes in it.

    Args:
        records: of the event `accumulation` and one rank, each with way and bytes (one per microbatch).
    """
    records = require(records, "accumulation")
    parts = len(records[0]["bytes"])
    totals = ", ".join(f"{record['way']}: {sum(record['bytes']) / 1000:,.0f} kB" for record in records)
    figure, (axes,) = new(0.5 * len(records) + 1.1, f"Bytes that one rank hands over for one update. {totals}.")
    for row, record in enumerate(records):
        for part, size in enumerate(record["bytes"]):
            face, ink = (RANKS[0], TEXT_ON_RANKS[0]) if size else (PALE, SOFT)
            axes.add_patch(Rectangle((part + 0.54, row - 0.4), 0.92, 0.8, facecolor=face))
            words = f"{size / 1000:,.0f} kB" if size else "nothing"
            axes.text(part + 1, row, words, ha="center", va="center", fontsize=9, color=ink)
        axes.text(parts + 0.6, row, f"= {sum(record['bytes']) / 1000:,.0f} kB", va="center", fontsize=9.5, color=INK)
    axes.set_xlim(0.5, parts + 1.4)
    lanes.lay(axes, [record["way"] for record in records])
    axes.set_xticks(range(1, parts + 1))
    say(axes, "no_sync saves traffic only when it holds the forward pass too", "microbatch of one update", None)
    return figure
