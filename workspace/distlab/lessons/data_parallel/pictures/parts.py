"""Where the time of a training step goes: one device beside replicas, a panel per network."""

from typing import Any

from distlab.drawing import lanes
from distlab.drawing.colours import INK, PALE, PAPER, SOFT
from distlab.drawing.figure import Picture, guide_lines, new, require, say

# Greys and hatches: these are parts of a step, and colours belong to replicas.
PARTS = {
    "scatter": ("scatter", PAPER, "....."),
    "replicate": ("replicate", PAPER, "////"),
    "parallel_apply": ("forward (parallel apply)", "#b6bcc6", ""),
    "gather": ("gather", PAPER, "xxxx"),
    "backward": ("loss and backward", SOFT, ""),
    "update": ("update", PALE, ""),
}
COPYING = ("scatter", "replicate", "gather")


def groups(records: list[dict]) -> dict[str, list[dict]]:
    """Network -> its records, one device first."""
    found: dict[str, list[dict]] = {}
    for record in sorted(require(records, "parts"), key=lambda record: record["replicas"]):
        found.setdefault(record["model"], []).append(record)
    return found


def times(records: list[dict], model: str) -> float:
    """How many times the step of one device a step on replicas takes."""
    alone, *_, spread = groups(records)[model]
    return spread["milliseconds"]["whole"] / alone["milliseconds"]["whole"]


def picture(records: list[dict]) -> Picture:
    """A panel per network; in it a bar per kind, divided into the parts of a step.

    Args:
        records: of the event `parts`, each with model, replicas (0 for one device), threads and
            milliseconds (of each part, and `whole`).
    """
    panels = groups(records)
    every = [record for both in panels.values() for record in both]
    said = "; ".join(
        f"{record['model']}, {_name(record)}: {record['milliseconds']['whole']:.1f} ms" for record in every
    )
    alt = f"Time of one training step by its parts. {said}."
    figure, all_axes = new(1.15 * len(panels) + 0.9, alt, rows=len(panels))
    handles: dict = {}
    for axes, (model, both) in zip(all_axes, panels.items(), strict=True):
        guide_lines(axes, "x")
        longest = max(record["milliseconds"]["whole"] for record in both)
        for row, record in enumerate(both):
            left = 0.0
            for part, (label, colour, hatch) in PARTS.items():
                width = record["milliseconds"].get(part, 0.0)
                if width:
                    look: dict[str, Any] = {"color": colour, "edgecolor": INK, "hatch": hatch, "linewidth": 0.7}
                    handles[label] = axes.barh(row, width, 0.62, left, **look)
                left += width
            axes.text(left + 0.01 * longest, row, f"{left:.1f} ms", va="center", fontsize=9, color=INK)
        lanes.lay(axes, [_name(record) for record in both])
        axes.set_xlim(0, 1.12 * longest)
        ratio = times(records, model)
        last = axes is all_axes[-1]
        say(axes, f"{model}: {ratio:.1f} times as long on replicas", "milliseconds of one step" if last else None, None)
    names = [label for label, _, _ in PARTS.values() if label in handles]
    bars = [handles[name] for name in names]
    figure.legend_below(3, handles=bars, labels=names)
    return figure


def _name(record: dict) -> str:
    cores = f", {record['threads']} core{'s' * (record['threads'] != 1)}" if record["device"] == "cpu" else ""
    return f"{record['replicas'] or 'one'} {'replicas' if record['replicas'] else 'device'}{cores}"
