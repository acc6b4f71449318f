"""When each rank computes and when its gradients travel: one training step, rank by rank."""

from typing import Any

from matplotlib.axes import Axes
from matplotlib.patches import Patch

from distlab.drawing import lanes
from distlab.drawing.colours import INK, PAPER, SOFT, look
from distlab.drawing.figure import Picture, guide_lines, new, require, say
from distlab.measure.trace import intervals, merged, overlap, rows

LANE = 0.4


def _compute(axes: Axes, row: int, record: dict) -> None:
    its = look(record["rank"])
    for kind, alpha in (("forward", 0.4), ("backward", 1.0)):
        bars = [(start, end - start) for start, end in merged(intervals(record["spans"], kind))]
        axes.broken_barh(bars, (row - LANE, LANE), facecolor=its.colour, alpha=alpha, hatch=its.hatch)


def _talk(axes: Axes, row: int, record: dict) -> None:
    its, spans = look(record["rank"]), intervals(record["spans"], "communication")
    own = rows(spans)
    height = LANE / (1 + max(own, default=0))
    for number, ((start, end), part) in enumerate(zip(spans, own, strict=True)):
        bottom = row + part * height
        face: dict[str, Any] = {
            "facecolor": PAPER,
            "edgecolor": INK,
            "hatch": "////",
            "hatchcolor": its.colour,
            "linewidth": 0.8,
        }
        axes.broken_barh([(start, end - start)], (bottom, height), **face)
        lanes.number(axes, ((start + end) / 2, bottom + height / 2), number, paper=PAPER)


def _title(record: dict) -> str:
    buckets = len(record["buckets"])
    return "one bucket" if buckets == 1 else f"{buckets} buckets of at most {record['bucket_mb']:g} MB"


def picture(records: list[dict]) -> Picture:
    """A panel per bucket size; in it two lanes per rank, computing above and communication below.

    Args:
        records: of the event `timeline`, each with rank, bucket_mb, buckets and spans.
    """
    groups: dict[float, list[dict]] = {}
    for record in sorted(require(records, "timeline"), key=lambda record: (-record["bucket_mb"], record["rank"])):
        groups.setdefault(record["bucket_mb"], []).append(record)
    said = "; ".join(
        f"{_title(group[0])}: " + ", ".join(f"rank {record['rank']} {overlap(record['spans']):.0%}" for record in group)
        for group in groups.values()
    )
    alt = f"Timeline of one step. Share of communication that overlaps with backward, {said}."
    figure, panels = new(0.74 * len(records) + 0.5 * len(groups) + 0.8, alt, rows=len(groups), sharex=True)
    last = max(span["end"] for record in records for span in record["spans"])
    for axes, group in zip(panels, groups.values(), strict=True):
        guide_lines(axes, "x")
        for row, record in enumerate(group):
            _compute(axes, row, record)
            _talk(axes, row, record)
            end = max(span["end"] for span in record["spans"])
            axes.text(end, row, f"  {overlap(record['spans']):.0%} overlap", va="center", fontsize=9, color=INK)
        lanes.lay(axes, [f"rank {record['rank']}" for record in group])
        axes.set_xlim(0, 1.18 * last)
        say(axes, _title(group[0]), "milliseconds since the step began" if axes is panels[-1] else None, None)
    handles = [
        Patch(facecolor=SOFT, alpha=0.4, label="forward"),
        Patch(facecolor=SOFT, label="backward"),
        Patch(facecolor=PAPER, edgecolor=SOFT, hatch="////", label="all-reduce, by bucket number"),
    ]
    figure.legend_below(3, handles=handles)
    return figure
