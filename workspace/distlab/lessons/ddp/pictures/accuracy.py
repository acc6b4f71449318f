"""Accuracy after the same number of epochs, by how many samples make one update.

Draws what the training script `ddp` reported, run with batches of several sizes.
"""

from distlab.drawing.colours import INK, RANKS, SOFT
from distlab.drawing.figure import Picture, doubling, guide_lines, new, require, say

STYLES = {
    False: (RANKS[1], "s", "--", "learning rate as for one rank"),
    True: (RANKS[0], "o", "-", "learning rate scaled, with warm-up"),
}


def picture(records: list[dict]) -> Picture:
    """A line with and one without a scaled learning rate; the smallest batch begins both.

    Args:
        records: each with batch (samples of one update, over all ranks), scaled (bool) and accuracy (0 to 1).
    """
    records = require(records, "accuracy")
    said = "; ".join(
        f"{batch} samples an update, {'scaled' if scaled else 'not scaled'}: {accuracy:.1%}"
        for scaled, batch, accuracy in sorted((r["scaled"], r["batch"], r["accuracy"]) for r in records)
    )
    figure, (axes,) = new(3.3, f"Validation accuracy after equally many epochs. {said}.")
    guide_lines(axes)
    smallest = min(record["batch"] for record in records)
    for scaled, (colour, marker, line, label) in STYLES.items():
        mine = [record for record in records if record["scaled"] == scaled or record["batch"] == smallest]
        points = sorted((record["batch"], 100 * record["accuracy"]) for record in mine)
        if len(points) > 1:
            axes.plot(*zip(*points, strict=True), line, marker=marker, color=colour, mec=INK, ms=7, label=label)
            axes.annotate(
                f"{points[-1][1]:.0f} %", points[-1], (8, 0), textcoords="offset points", va="center", fontsize=9.5
            )
    batches = sorted({record["batch"] for record in records})
    doubling(axes, batches, [f"{batch:,}" for batch in batches])
    axes.margins(x=0.1)
    reference = min(records, key=lambda record: record["batch"])["accuracy"]
    axes.axhline(100 * reference, color=SOFT, linewidth=0.8, linestyle=":")
    title = "Large updates need a larger learning rate"
    say(axes, title, "samples in one update, all ranks", "validation accuracy (%)")
    axes.legend(loc="lower left", frameon=False, fontsize=9)
    return figure
