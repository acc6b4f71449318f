"""Time and memory of one training step, by number format and memory format."""

from distlab.drawing.colours import INK, RANKS, SOFT
from distlab.drawing.figure import Picture, guide_lines, new, require, say

MEGA = 1e6


def measured(records: list[dict]) -> list[dict]:
    """The rows that could be measured."""
    return [record for record in records if not record.get("why_not")]


def times_faster(records: list[dict], name: str) -> float:
    """How many times as fast as float32 a row is."""
    by_name = {record["name"]: record["milliseconds"] for record in measured(records)}
    return by_name["float32"] / by_name[name]


def words(machine: dict) -> str:
    """One line on what a machine has for numbers of 16 bits.

    Args:
        machine: the record of the event `machine`, with device, units, dtype and threads.
    """
    kind = "bf16" if machine["dtype"] == "bfloat16" else "fp16"
    has = ", ".join(machine["units"][kind]) or "none, so they are emulated"
    threads = f"{machine['threads']} thread{'s' if machine['threads'] != 1 else ''}"
    return f"{machine['device']}, {threads}; units for {kind}: {has}"


def _label(record: dict) -> str:
    if "compiled" in record["name"] and not record.get("why_not"):
        return f"{record['name']}\n(it took {record['first_seconds']:.0f} s)"
    return record["name"]


def picture(records: list[dict], machine: dict) -> Picture:
    """A bar per way for the time of a step, and one for the memory that it keeps; the machine named above.

    Args:
        records: of the event `row`, each with name, milliseconds, first_seconds, kept_bytes, or why_not.
        machine: the record of the event `machine`.
    """
    records = require(records, "row")
    found = measured(records)
    said = "; ".join(
        f"{record['name']}: {record['milliseconds']:.1f} ms, {record['kept_bytes'] / MEGA:.1f} MB" for record in found
    )
    figure, (left, right) = new(0.36 * len(records) + 1.3, f"Cost of one training step. {said}.", columns=2)
    first = found[0]
    for axes, key, factor, unit in ((left, "milliseconds", 1, "ms"), (right, "kept_bytes", 1 / MEGA, "MB")):
        guide_lines(axes, "x")
        top = max(record[key] for record in found) * factor
        for row, record in enumerate(records):
            if record.get("why_not"):
                axes.text(0, row, f" {record['why_not']}", va="center", fontsize=8.5, color=SOFT)
                continue
            value = record[key] * factor
            axes.barh(row, value, 0.6, color=RANKS[0] if value <= first[key] * factor else RANKS[1])
            share = f"{value:.3g} {unit}" + ("" if record is first else f", {value / (first[key] * factor):.2f} x")
            axes.text(value + 0.02 * top, row, share, va="center", fontsize=8.5, color=INK)
        axes.set_xlim(0, 1.6 * top)
        axes.set_ylim(len(records) - 0.5, -0.5)
    left.set_yticks(range(len(records)), [_label(record) for record in records])
    right.set_yticks(range(len(records)), [""] * len(records))
    say(left, "time", "milliseconds for one step", None)
    say(right, "memory", "megabytes kept for backward", None)
    figure.suptitle(words(machine), fontsize=9.5, x=0.01, ha="left", color=INK)
    return figure
