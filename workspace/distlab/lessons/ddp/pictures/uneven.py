"""Ranks with different numbers of batches: what each was given and how far it came."""

from distlab.drawing.colours import INK, PALE, PAPER, SOFT, look
from distlab.drawing.figure import Picture, new, require, say


def reached(records: list[dict]) -> dict[int, int]:
    """Rank -> batches trained.

    Args:
        records: of the event `batch`, each with rank and number (from 1).
    """
    result: dict[int, int] = {}
    for record in records:
        result[record["rank"]] = max(result.get(record["rank"], 0), record["number"])
    return result


def picture(plans: dict[int, int], runs: dict[str, dict[int, int]]) -> Picture:
    """A panel per run, a row per rank, a box per batch: full where it was trained, empty where not.

    Args:
        plans: rank -> batches it was given.
        runs: title -> (rank -> batches trained), as `reached` returns it.
    """
    require(list(runs), "batch")
    plans = dict(sorted(plans.items()))
    said = "; ".join(
        f"{title}: " + ", ".join(f"rank {rank} trained {done.get(rank, 0)} of {plan}" for rank, plan in plans.items())
        for title, done in runs.items()
    )
    figure, panels = new(0.3 * len(plans) + 1.1, f"Batches by rank. {said}.", columns=len(runs), sharey=True)
    for axes, (title, done) in zip(panels, runs.items(), strict=True):
        for row, (rank, plan) in enumerate(plans.items()):
            its, trained = look(rank), done.get(rank, 0)
            for batch in range(1, plan + 1):
                full = batch <= trained
                axes.barh(
                    row,
                    0.86,
                    0.72,
                    left=batch - 0.43,
                    color=its.colour if full else PAPER,
                    edgecolor=INK if full else SOFT,
                    hatch=its.hatch if full else "",
                    linestyle="-" if full else ":",
                    linewidth=0.8,
                )
        most = max(plans.values())
        axes.axvline(min(plans.values()) + 0.5, color=PALE, zorder=0)
        axes.set_xlim(0.4, most + 0.6)
        axes.set_ylim(len(plans) - 0.5, -0.5)
        axes.set_xticks(range(1, most + 1))
        say(axes, title, "batch", None)
    panels[0].set_yticks(range(len(plans)), [f"rank {rank}" for rank in plans])
    return figure
