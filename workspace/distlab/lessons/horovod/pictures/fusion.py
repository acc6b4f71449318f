"""How many all-reduces a step takes, and how long, by Horovod's settings for fusing tensors."""

from distlab.drawing.colours import INK, PAPER, RANKS, SOFT
from distlab.drawing.figure import Picture, guide_lines, new, require, say
from distlab.drawing.units import words_of_size


def name(record: dict) -> str:
    """A setting in words: how much may travel together, and how often Horovod looks for it."""
    threshold = record["threshold_bytes"]
    most = f"up to {words_of_size(threshold)}" if threshold else "no fusion"
    return f"{most}, every {record['cycle_ms']:g} ms"


def number(value: float) -> str:
    """Three digits, or as many as stand before the point.

    >>> number(1340.37), number(64.0), number(54.41)
    ('1,340', '64', '54.4')
    """
    return f"{value:,.0f}" if value >= 1000 else f"{value:.3g}"


def table(records: list[dict]) -> list[dict]:
    """A row per setting: its name, tensors, all-reduces and milliseconds of a step (medians), in the order of runs."""
    return [
        {
            "setting": name(record),
            "tensors": record["tensors"],
            "all-reduces": record["reduces"],
            "milliseconds": record["milliseconds"],
        }
        for record in require(records, "fusion")
    ]


def picture(records: list[dict]) -> Picture:
    """A bar per setting for the number of all-reduces in a step, and one for its time; a ring for each step.

    Args:
        records: of the event `fusion` of several runs, each with threshold_bytes, cycle_ms, tensors, bytes,
            milliseconds and reduces (medians), milliseconds_each and reduces_each (one for each step).
    """
    records = require(records, "fusion")
    sent = f"{records[0]['tensors']} tensors, {words_of_size(records[0]['bytes'])}"
    rows = table(records)
    said = "; ".join(
        f"{row['setting']}: all-reduces {row['all-reduces']:g}, {number(row['milliseconds'])} ms" for row in rows
    )
    figure, axes = new(0.42 * len(rows) + 1.3, f"One step of {sent}, by setting (medians). {said}.", columns=2)
    kinds = (("reduces", "all-reduces in one step", RANKS[0], ""), ("milliseconds", "milliseconds", PAPER, "////"))
    for panel, (key, unit, colour, hatch) in zip(axes, kinds, strict=True):
        guide_lines(panel, "x")
        top = max(max(record[f"{key}_each"]) for record in records)
        for row, record in enumerate(records):
            each = record[f"{key}_each"]
            panel.barh(row, record[key], 0.6, color=colour, edgecolor=INK, hatch=hatch, hatchcolor=SOFT, linewidth=0.8)
            panel.plot(each, [row] * len(each), "o", mfc=PAPER, mec=INK, ms=4.5, mew=0.9)
            panel.text(max(each) + 0.03 * top, row, number(record[key]), va="center", fontsize=9, color=INK)
        panel.set_xlim(0, 1.18 * top)
        panel.set_ylim(len(records) - 0.5, -0.5)
        panel.set_yticks(range(len(records)), [row["setting"] if panel is axes[0] else "" for row in rows])
        say(panel, "How many" if panel is axes[0] else "How long", unit, None)
    figure.suptitle(f"{sent} in one step: bar for the median, ring for each step", x=0.01, ha="left", fontsize=9.5)
    return figure
