"""The share of a step that ranks are idle, over the number of microbatches: measured beside the formula.

Draws what `schedules.bubble` makes of the steps that `pipeline/steps` reported.
"""

from typing import Any

from distlab.drawing.colours import INK, look
from distlab.drawing.figure import Picture, doubling, guide_lines, new, require, say
from distlab.lessons.pipeline.orders import STAGES_PER_RANK, stages_per_rank
from distlab.lessons.pipeline.schedules import bubble, formula, simulate

# gpipe and 1f1b have the same formula, so they share a line.
RULES = {
    "gpipe": "(p - 1) / (m + p - 1)",
    "1f1b": "(p - 1) / (m + p - 1)",
    "interleaved": "(p - 1) / (2 m + p - 1)",
    "zero-bubble": "zero-bubble, simulated",
}
STYLES = ("-", "--", ":", "-.")


def expected(schedule: str, ranks: int, microbatches: float) -> float:
    """The bubble by the formula; for zero-bubble, which has none, by the simulator with a backward of two forwards.

    >>> expected("gpipe", 2, 4), round(expected("zero-bubble", 2, 4), 2)
    (0.2, 0.04)

    Raises:
        ValueError: there is no such schedule.
    """
    if schedule == "zero-bubble":
        return bubble(simulate(schedule, ranks, int(microbatches)))
    return formula(ranks, microbatches, stages_per_rank(schedule))


def table(measured: list[dict]) -> list[dict]:
    """A row per measurement: schedule, ranks, microbatches, measured and expected bubble (0 to 1).

    Args:
        measured: as `picture` takes it.
    """
    rows = [
        {key: record[key] for key in ("schedule", "ranks", "microbatches")}
        | {
            "measured": record["bubble"],
            "expected": expected(record["schedule"], record["ranks"], record["microbatches"]),
        }
        for record in require(measured, "bubble")
    ]
    names = list(STAGES_PER_RANK)
    return sorted(rows, key=lambda row: (names.index(row["schedule"]), row["ranks"], row["microbatches"]))


def picture(measured: list[dict]) -> Picture:
    """Points of each schedule, and the line on which they would lie if all stages took the same time.

    Args:
        measured: each with schedule, ranks, microbatches and bubble (0 to 1, as `schedules.bubble` gives it).
    """
    rows = table(measured)
    said = "; ".join(
        f"{row['schedule']}, {row['microbatches']} microbatches: {row['measured']:.0%}, expected {row['expected']:.0%}"
        for row in rows
    )
    figure, (axes,) = new(3.6, f"Idle share of a step by number of microbatches. {said}.")
    guide_lines(axes)
    series: dict[tuple[str, int], list[dict]] = {}
    lines: dict[tuple[str, int], set[int]] = {}
    for row in rows:
        series.setdefault((row["schedule"], row["ranks"]), []).append(row)
        lines.setdefault((RULES[row["schedule"]], row["ranks"]), set()).add(row["microbatches"])
    for (rule, ranks), style in zip(lines, STYLES * len(lines), strict=False):
        name = next(name for name in RULES if RULES[name] == rule)
        # Between whole numbers a formula gives a smooth line; the simulator knows none.
        parts = 1 if name == "zero-bubble" else 8
        at = [n / parts for n in range(parts * min(lines[rule, ranks]), parts * max(lines[rule, ranks]) + 1)]
        curve = [100 * expected(name, ranks, m) for m in at]
        axes.plot(at, curve, style, color=INK, linewidth=1.3, label=f"{rule}, p = {ranks}")
    for number, ((name, ranks), own) in enumerate(series.items()):
        at, its = [row["microbatches"] for row in own], look(number)
        mark: dict[str, Any] = {"color": its.colour, "mec": INK, "ms": 8, "label": f"{name} measured, p = {ranks}"}
        axes.plot(at, [100 * row["measured"] for row in own], its.marker, **mark)
    pieces = sorted({row["microbatches"] for row in rows})
    doubling(axes, pieces, pieces)
    axes.set_ylim(0, None)
    axes.yaxis.set_major_formatter("{x:.0f} %")
    say(axes, "Idle share of a step, measured and expected", "microbatches in a step (m)", "bubble")
    axes.legend(frameon=False, fontsize=8.5, loc="center left", bbox_to_anchor=(1, 0.5))
    return figure
