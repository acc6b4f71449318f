"""Ranks as a mesh: hosts are rows, devices are columns, a frame goes round each group."""

from typing import Any

from matplotlib.axes import Axes
from matplotlib.patches import FancyBboxPatch, Rectangle

from distlab.drawing.colours import INK, PAPER, look
from distlab.drawing.figure import Picture, bare, new, require

# Which sums, over the groups along which axis, and what the panel is called.
PANELS = {
    "within": ("device", "axis device: within hosts"),
    "across": ("host", "axis host: across hosts"),
    "both": (None, "one after the other"),
}


def groups(records: list[dict], axis: str | None) -> list[list[int]]:
    """The groups of ranks along an axis, or the one of all ranks.

    Args:
        records: of the event `mesh`, each with rank and ranks (axis -> ranks of this rank's group).
    """
    if axis is None:
        return [sorted(record["rank"] for record in records)]
    return sorted({tuple(record["ranks"][axis]): list(record["ranks"][axis]) for record in records}.values())


def _frame(axes: Axes, places: dict[int, tuple[int, int]], ranks: list[int]) -> None:
    rows, columns = zip(*(places[rank] for rank in ranks), strict=True)
    left, bottom = min(columns) - 0.42, min(rows) - 0.4
    wide, high = max(columns) - min(columns) + 0.84, max(rows) - min(rows) + 0.8
    style: dict[str, Any] = {"boxstyle": "round,pad=0,rounding_size=0.12", "facecolor": "none", "edgecolor": INK}
    axes.add_patch(FancyBboxPatch((left, bottom), wide, high, linewidth=1.6, **style))


def picture(mesh: list[dict], sums: list[dict]) -> Picture:
    """A panel per axis and one for both: each rank with what it holds after an all-reduce in its group.

    Args:
        mesh: records of the event `mesh`, each with rank, host, place ([row, column]) and ranks.
        sums: records of the event `sums`, each with rank, within, across and both.
    """
    mesh, sums = require(mesh, "mesh"), require(sums, "sums")
    places = {record["rank"]: tuple(record["place"]) for record in mesh}
    hosts = {record["place"][0]: record["host"] for record in mesh}
    values = {record["rank"]: record for record in sums}
    columns = sorted({place[1] for place in places.values()})
    said = "; ".join(
        f"{title}: " + ", ".join(f"rank {rank} has {values[rank][key]:g}" for rank in sorted(places))
        for key, (_, title) in PANELS.items()
    )
    figure, panels = new(0.85 * len(hosts) + 0.95, f"Mesh of ranks. {said}.", columns=len(PANELS), sharey=True)
    for axes, (key, (axis, title)) in zip(panels, PANELS.items(), strict=True):
        for rank, (row, column) in places.items():
            its = look(rank)
            face: dict[str, Any] = {"facecolor": its.colour, "edgecolor": PAPER, "hatch": its.hatch}
            axes.add_patch(Rectangle((column - 0.33, row - 0.3), 0.66, 0.6, **face))
            words = f"rank {rank}\n{values[rank][key]:g}"
            axes.text(column, row, words, ha="center", va="center", fontsize=8.5, color=its.text)
        for ranks in groups(mesh, axis):
            _frame(axes, places, ranks)
        axes.set_xlim(columns[0] - 0.55, columns[-1] + 0.55)
        axes.set_ylim(len(hosts) - 0.5, -0.5)
        axes.set_xticks(columns, [f"device {column}" for column in columns])
        axes.set_yticks(sorted(hosts), [hosts[row] for row in sorted(hosts)])
        bare(axes)
        axes.set_title(title, fontsize=9.5, loc="left")
    return figure
