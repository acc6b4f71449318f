"""When each rank works and when it waits for a message: a panel per way, a lane per rank."""

from typing import Any

from matplotlib.patches import Patch

from distlab.drawing import lanes
from distlab.drawing.colours import INK, PAPER, SOFT, look
from distlab.drawing.figure import Picture, guide_lines, new, require, say

TITLES = {
    "recv": "recv: wait for the message, then work",
    "irecv": "irecv: ask for the message, work, then wait",
}
HEIGHT = 0.62


def done(records: list[dict], way: str, rank: int) -> float:
    """Milliseconds until a rank had both the message and its work behind it.

    Args:
        records: of the event `span`, each with rank, way, kind, start and end (ms).
    """
    return max(record["end"] for record in require(records, "span") if (record["way"], record["rank"]) == (way, rank))


def picture(records: list[dict]) -> Picture:
    """Bars of work in a rank's colour, bars of waiting hatched.

    Args:
        records: of the event `span`, each with rank, way ('recv' or 'irecv'), kind ('work', 'wait' or 'send'),
            start and end (ms).
    """
    records = require(records, "span")
    ways = [way for way in TITLES if any(record["way"] == way for record in records)]
    ranks = sorted({record["rank"] for record in records})
    last = max(record["end"] for record in records)
    said = "; ".join(
        f"{way}: " + ", ".join(f"rank {rank} done after {done(records, way, rank):.0f} ms" for rank in ranks)
        for way in ways
    )
    height = 0.42 * len(ranks) * len(ways) + 1.5
    figure, panels = new(height, f"Timeline of one message. {said}.", len(ways), sharex=True)
    for axes, way in zip(panels, ways, strict=True):
        guide_lines(axes, "x")
        for record in records:
            if record["way"] != way:
                continue
            its, row = look(record["rank"]), ranks.index(record["rank"])
            bar = (record["start"], record["end"] - record["start"])
            face: dict[str, Any] = {"facecolor": its.colour, "hatch": its.hatch}
            if record["kind"] != "work":
                face = {"facecolor": PAPER, "edgecolor": INK, "hatch": "////", "linewidth": 0.8}
            axes.broken_barh([bar], (row - HEIGHT / 2, HEIGHT), **face)
        for row, rank in enumerate(ranks):
            end = done(records, way, rank)
            axes.text(end, row, f"  {end:.0f} ms", va="center", fontsize=9, color=INK)
        lanes.lay(axes, [f"rank {rank}" for rank in ranks])
        axes.set_xlim(0, 1.12 * last)
        say(axes, TITLES[way], "milliseconds since both began" if axes is panels[-1] else None, None)
    handles = [
        Patch(facecolor=SOFT, label="works"),
        Patch(facecolor=PAPER, edgecolor=INK, hatch="////", label="waits for the other"),
    ]
    figure.legend_below(2, handles=handles)
    return figure
