"""The range and the precision of floating-point formats, and what they make of a few values."""

import math

from distlab.drawing.colours import INK, RANKS, SOFT
from distlab.drawing.figure import Picture, guide_lines, new, require, say

ORDER = ("fp32", "tf32", "bf16", "fp16", "fp8 e5m2", "fp8 e4m3")
EVERY = 32
SPREAD = 152


def in_order(records: list[dict]) -> list[dict]:
    """The records from the widest format to the narrowest."""
    return sorted(require(records, "format"), key=lambda record: ORDER.index(record["name"]))


def steps(record: dict) -> int:
    """How many numbers a format has from 1 up to, and without, 2."""
    return round(1 / record["step"])


def powers(record: dict) -> int:
    """How many powers of two lie between its smallest number with full precision and its largest."""
    return round(math.log2(record["largest"]) - math.log2(record["smallest_normal"]))


def table(records: list[dict]) -> list[dict]:
    """A row per format: its name, numbers from 1 to 2, its largest number, and what becomes of each value."""
    return [
        {"format": record["name"], "numbers from 1 to 2": f"{steps(record):,}", "largest": f"{record['largest']:.3g}"}
        | {
            f"{value:g}": f"{float(rounded):.6g}"
            for value, rounded in zip(record["values"], record["rounded"], strict=True)
        }
        for record in in_order(records)
    ]


def picture(records: list[dict]) -> Picture:
    """A bar per format over the powers of two that it reaches, pale where precision fades; its precision beside it.

    Args:
        records: of the event `format`, each with name, largest, smallest_normal, smallest and step.
    """
    records = in_order(records)
    said = "; ".join(
        f"{record['name']} from 2^{math.log2(record['smallest']):.0f} to 2^{math.log2(record['largest']):.0f}, "
        f"{steps(record):,} numbers from 1 to 2"
        for record in records
    )
    figure, (axes,) = new(0.42 * len(records) + 1.0, f"Range and precision of formats. {said}.")
    guide_lines(axes, "x")
    for row, record in enumerate(records):
        smallest, normal, largest = (math.log2(record[key]) for key in ("smallest", "smallest_normal", "largest"))
        colour = RANKS[1] if record["name"] in ("bf16", "fp16") else RANKS[0]
        axes.barh(row, normal - smallest, 0.56, left=smallest, color=colour, alpha=0.35)
        axes.barh(row, largest - normal, 0.56, left=normal, color=colour)
        axes.text(134, row, f"{steps(record):,}", va="center", fontsize=9.5, color=INK)
    axes.text(134, -0.75, "numbers from 1 to 2", fontsize=9, color=SOFT)
    axes.axvline(0, color=INK, linewidth=0.8)
    axes.set_yticks(range(len(records)), [record["name"] for record in records])
    axes.set_ylim(len(records) - 0.5, -0.6)
    axes.set_xlim(-SPREAD, SPREAD + 40)
    marks = range(-128, 129, EVERY)
    axes.set_xticks(marks, [f"$2^{{{mark}}}$" for mark in marks])
    say(axes, "bf16 keeps the range of fp32, fp16 keeps more of its precision", "size of a number", None)
    axes.xaxis.set_label_coords(0.42, -0.16)
    return figure
