"""When each rank works and when it waits for a message: a panel per way, a lane per rank."""

from matplotlib.patches import Patch

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
    return max(one["end"] for one in require(records, "span") if (one["way"], one["rank"]) == (way, rank))


def picture(records: list[dict]) -> Picture:
    """Bars of work in a rank's colour, bars of waiting hatched.

    Args:
        records: of the event `span`, each with rank, way ('recv' or 'irecv'), kind ('work', 'wait' or 'send'),
            start and end (ms).
    """
    records = require(records, "span")
    ways = [way for way in TITLES if any(one["way"] == way for one in records)]
    ranks = sorted({one["rank"] for one in records})
    last = max(one["end"] for one in records)
    said = "; ".join(
        f"{way}: " + ", ".join(f"rank {rank} done after {done(records, way, rank):.0f} ms" for rank in ranks)
        for way in ways
    )
    height = 0.42 * len(ranks) * len(ways) + 1.5
    figure, panels = new(height, f"Timeline of one message. {said}.", len(ways), sharex=True)
    for axes, way in zip(panels, ways, strict=True):
        guide_lines(axes, "x")
        for one in records:
            if one["way"] != way:
                continue
            its, row = look(one["rank"]), ranks.index(one["rank"])
            bar = (one["start"], one["end"] - one["start"])
            face = {"facecolor": its.colour, "hatch": its.hatch}
            if one["kind"] != "work":
                face = {"facecolor": PAPER, "edgecolor": INK, "hatch": "////", "linewidth": 0.8}
            axes.broken_barh([bar], (row - HEIGHT / 2, HEIGHT), **face)
        for row, rank in enumerate(ranks):
            end = done(records, way, rank)
            axes.text(end, row, f"  {end:.0f} ms", va="center", fontsize=9, color=INK)
        axes.set_yticks(range(len(ranks)), [f"rank {rank}" for rank in ranks])
        axes.set_ylim(len(ranks) - 0.5, -0.5)
        axes.set_xlim(0, 1.12 * last)
        say(axes, TITLES[way], "milliseconds since both began" if axes is panels[-1] else None, None)
    handles = [
        Patch(facecolor=SOFT, label="works"),
        Patch(facecolor=PAPER, edgecolor=INK, hatch="////", label="waits for the other"),
    ]
    figure.legend(handles=handles, loc="outside lower center", ncols=2, frameon=False, fontsize=9)
    return figure
