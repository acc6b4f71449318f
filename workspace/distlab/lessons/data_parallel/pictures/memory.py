"""What each device holds at the height of a training step by DataParallel."""

from matplotlib.patches import Patch

from distlab.drawing import lanes
from distlab.drawing.colours import INK, PALE, PAPER, SOFT, look
from distlab.drawing.figure import Picture, guide_lines, new, require, say

# What every device needs is plain; what only the main one holds is hatched.
PARTS = {
    "weights": ("weights", PALE, ""),
    "gradients": ("gradients", "#b6bcc6", ""),
    "activations": ("activations", SOFT, ""),
    "batch": ("its samples (the main device: all)", PAPER, "....."),
    "gathered": ("gathered outputs", PAPER, "xxxx"),
    "optimizer": ("optimizer's state", PAPER, "////"),
}


def total(record: dict) -> int:
    """Bytes that a device holds."""
    return sum(record["bytes"].values())


def picture(records: list[dict]) -> Picture:
    """A bar per device, divided into what it holds; a mark where the allocator's own peak was read.

    Args:
        records: of the event `memory`, each with replica, bytes (by part) and measured (bytes or None).
    """
    records = sorted(require(records, "memory"), key=lambda record: record["replica"])
    said = ", ".join(f"device {record['replica']}: {total(record) / 1e6:.2f}" for record in records)
    figure, (axes,) = new(0.42 * len(records) + 1.5, f"Megabytes held at the height of a step. {said}.")
    guide_lines(axes, "x")
    longest = max(max(total(record), record["measured"] or 0) for record in records)
    for row, record in enumerate(records):
        left = 0.0
        for part, (_, colour, hatch) in PARTS.items():
            width = record["bytes"][part] / 1e6
            if width:
                axes.barh(row, width, 0.66, left, color=colour, edgecolor=INK, hatch=hatch, linewidth=0.7)
            left += width
        axes.text(left + 0.01 * longest / 1e6, row, f"{left:.2f} MB", va="center", fontsize=9, color=INK)
        if record["measured"]:
            axes.plot(record["measured"] / 1e6, row, look(record["replica"]).marker, color=INK, mfc="none", ms=8)
    names = [f"device {record['replica']}" + " (main)" * (record["replica"] == 0) for record in records]
    lanes.lay(axes, names)
    axes.set_xlim(0, 1.14 * longest / 1e6)
    more = total(records[0]) / total(records[-1])
    say(axes, f"The main device holds {more:.1f} times what the last one holds", "megabytes", None)
    handles = [
        Patch(facecolor=colour, edgecolor=INK, hatch=hatch, label=label) for label, colour, hatch in PARTS.values()
    ]
    figure.legend_below(3, handles=handles)
    return figure
