"""When two threads of one process are at work: in turns, or at the same time."""

from distlab.drawing import lanes
from distlab.drawing.colours import INK, look
from distlab.drawing.figure import Picture, guide_lines, new, require, say


def overlap(spans: list[list[list[float]]]) -> float:
    """Time in which two threads are both at work, as a share of the time of the one that works less."""
    first, second = spans
    both = sum(max(0.0, min(a[1], b[1]) - max(a[0], b[0])) for a in first for b in second)
    least = min(sum(end - start for start, end in each) for each in (first, second))
    return both / least if least else 0.0


def times(record: dict) -> float:
    """How many times as long two threads take for their work as one takes for its half of it."""
    return record["together"] / record["alone"]


def picture(records: list[dict]) -> Picture:
    """A panel per kind of work, a lane per thread, a bar while it is at work.

    Args:
        records: of the event `threads`, each with kind, alone and together (s), and spans (one list per
            thread of [start, end] in ms).
    """
    records = require(records, "threads")
    said = "; ".join(f"{record['kind']}: {overlap(record['spans']):.0%} of the time both at work" for record in records)
    figure, panels = new(1.02 * len(records) + 0.35, f"Two threads over time. {said}.", rows=len(records), sharex=True)
    last = max(1000 * record["together"] for record in records)
    for axes, record in zip(panels, records, strict=True):
        guide_lines(axes, "x")
        for number, lane in enumerate(record["spans"]):
            its = look(number)
            bars = [(start, end - start) for start, end in lane]
            axes.broken_barh(bars, (number - 0.36, 0.72), facecolor=its.colour, hatch=its.hatch)
        lanes.lay(axes, [f"thread {number}" for number in range(len(record["spans"]))])
        axes.set_xlim(0, 1.02 * last)
        axes.axvline(1000 * record["alone"], color=INK, linestyle=":", linewidth=1.2)
        title = f"{record['kind']}: two threads take {times(record):.1f} times as long as one with half of the work"
        bottom = axes is panels[-1]
        say(axes, title, "milliseconds (dotted: when one thread alone has done its work)" if bottom else None, None)
    return figure
