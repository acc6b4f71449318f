"""What each rank of a pipeline holds at the height of a step, schedule beside schedule."""

from matplotlib.patches import Patch

from distlab.drawing.colours import INK, PAPER, look
from distlab.drawing.figure import Picture, guide_lines, new, require, say

PARTS = ("activations", "parameters", "gradients", "optimizer")


def table(records: list[dict]) -> list[dict]:
    """A row per rank and schedule: schedule, rank, microbatches, and megabytes of each part.

    Args:
        records: as `picture` takes them.
    """
    return [
        {key: record[key] for key in ("schedule", "rank", "microbatches")}
        | {f"{part} (MB)": record[part] / 1e6 for part in PARTS}
        for record in sorted(require(records, "memory"), key=lambda record: record["rank"])
    ]


def picture(records: list[dict]) -> Picture:
    """Activations: a group of bars for each schedule, a bar for each rank.

    Args:
        records: of the event `memory`, each with rank, schedule, microbatches, and in bytes
            activations (at their peak), parameters, gradients and optimizer.
    """
    rows = table(records)
    groups: dict[str, list[dict]] = {}
    pieces = {row["microbatches"] for row in rows}
    for row in rows:
        name = row["schedule"] + f"\n{row['microbatches']} microbatches" * (len(pieces) > 1)
        groups.setdefault(name, []).append(row)
    held = "activations (MB)"
    said = "; ".join(
        f"{' '.join(name.split())}: " + ", ".join(f"rank {row['rank']} {row[held]:.2f}" for row in own)
        for name, own in groups.items()
    )
    figure, (axes,) = new(3.4, f"Megabytes of activations at the height of a step. {said}.")
    guide_lines(axes)
    most = max(row[held] for row in rows)
    width = 0.84 / max(len(own) for own in groups.values())
    for place, own in enumerate(groups.values()):
        for number, row in enumerate(own):
            its, x = look(row["rank"]), place + (number - (len(own) - 1) / 2) * width
            axes.bar(x, row[held], width, color=its.colour, edgecolor=PAPER, hatch=its.hatch)
            axes.text(x, row[held] + 0.01 * most, f"{row[held]:.3g}", ha="center", va="bottom", fontsize=8, color=INK)
    axes.set_xticks(range(len(groups)), groups)
    axes.set_ylim(0, 1.1 * most)
    title = "Activations that a rank holds at once" + f", {min(pieces)} microbatches" * (len(pieces) == 1)
    say(axes, title, None, "megabytes at the peak")
    ranks = sorted({row["rank"] for row in rows})
    handles = [Patch(facecolor=look(rank).colour, hatch=look(rank).hatch, label=f"rank {rank}") for rank in ranks]
    figure.legend_below(min(len(handles), 8), handles=handles)
    return figure
