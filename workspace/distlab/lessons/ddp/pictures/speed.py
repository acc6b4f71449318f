"""Images per second on more and more ranks, beside the ideal line and what the machine can give."""

from matplotlib.lines import Line2D
from matplotlib.patches import Patch

from distlab.drawing.colours import INK, look
from distlab.drawing.figure import Picture, guide_lines, new, require, say

TALKING, SILENT = "images_per_second", "images_per_second_silent"


def by_world(records: list[dict]) -> dict[int, list[dict]]:
    """World size -> its records in rank order, smallest world first."""
    worlds: dict[int, list[dict]] = {}
    for record in sorted(records, key=lambda record: (record["world_size"], record["rank"])):
        worlds.setdefault(record["world_size"], []).append(record)
    return worlds


def processors(records: list[dict]) -> int:
    """Cores or GPUs that these ranks have between them, each counted once."""
    return len({processor for record in records for processor in record["processors"]})


def best_round(records: list[dict], key: str) -> list[float]:
    """Each rank's number in the round with the highest total: the one that other work disturbed least."""
    return list(max(zip(*(record[key] for record in records), strict=True), key=sum))


def talking(records: list[dict]) -> float:
    """The share of a step that goes into communication: 0 to 1.

    The same steps are timed with and without all-reduces on the same ranks; what is missing is
    the price of talking, waiting for others included.
    """
    with_talk, silent = (sum(best_round(records, key)) for key in (TALKING, SILENT))
    return max(0.0, 1 - with_talk / silent)


def table(records: list[dict]) -> list[dict]:
    """A row per world size: ranks, images/s, times one rank, share of ideal, share of talking."""
    worlds = by_world(require(records, "speed"))
    totals = {world: sum(best_round(ranks, TALKING)) for world, ranks in worlds.items()}
    smallest = min(worlds)
    one_rank = totals[smallest] / smallest
    return [
        {
            "ranks": world,
            "images_per_second": totals[world],
            "times_one_rank": totals[world] / one_rank,
            "of_ideal": totals[world] / (one_rank * world),
            "could_be": min(world, processors(ranks)),
            "talking": talking(ranks),
        }
        for world, ranks in worlds.items()
    ]


def picture(records: list[dict]) -> Picture:
    """A bar per world size, stacked by rank; the ideal line; a step line for cores or GPUs.

    Args:
        records: of the event `speed` of several runs, each with rank, world_size, processors (a list of
            names of cores or GPUs), images_per_second and images_per_second_silent (of that rank, one per round).
    """
    worlds, rows = by_world(require(records, "speed")), table(records)
    on_gpus = any(processor.startswith("GPU") for record in records for processor in record["processors"])
    kind = ("GPU" if on_gpus else "core") + "s" * (processors(records) != 1)
    one_rank = rows[0]["images_per_second"] / rows[0]["ranks"]
    said = "; ".join(
        f"{row['ranks']}: {row['images_per_second']:,.0f}, {row['times_one_rank']:.2f} times one rank" for row in rows
    )
    figure, (axes,) = new(3.5, f"Images per second by number of ranks: {said}.")
    guide_lines(axes)
    places = range(len(rows))
    top = max(row["ranks"] for row in rows) * one_rank
    for place, (ranks, row) in enumerate(zip(worlds.values(), rows, strict=True)):
        bottom = 0.0
        for record, height in zip(ranks, best_round(ranks, TALKING), strict=True):
            its = look(record["rank"])
            axes.bar(place, height, 0.5, bottom, color=its.colour, edgecolor="white", hatch=its.hatch)
            if height > 0.06 * top:
                words = f"rank {record['rank']}"
                axes.text(place, bottom + height / 2, words, ha="center", va="center", fontsize=8, color=its.text)
            bottom += height
        axes.text(place + 0.28, 0.5 * bottom, f"{row['times_one_rank']:.2f} x", va="center", fontsize=10, color=INK)
        could = row["could_be"] * one_rank
        axes.hlines(could, place - 0.36, place + 0.36, color=INK, linewidth=2)
    ideal = [row["ranks"] * one_rank for row in rows]
    axes.plot(places, ideal, "--", color=INK, linewidth=1.2, marker="o", mfc="white", ms=5)
    axes.set_xticks(list(places), [f"{row['ranks']}\n{row['talking']:.0%} of the time talking" for row in rows])
    axes.set_xlim(-0.6, len(rows) - 0.4)
    axes.set_ylim(0, 1.1 * top)
    axes.yaxis.set_major_formatter("{x:,.0f}")
    most, here = rows[-1], processors(list(worlds.values())[-1])
    title = f"{most['ranks']} ranks on {here} {kind}: {most['times_one_rank']:.1f} times one rank"
    say(axes, title, "ranks", "images per second, all ranks")
    handles = [
        Line2D([], [], color=INK, linestyle="--", marker="o", mfc="white", ms=5, label="ideal: ranks x one rank"),
        Line2D([], [], color=INK, linewidth=2, label=f"one rank x {kind} in use"),
        Patch(facecolor=look(0).colour, label="measured, by rank"),
    ]
    figure.legend_below(3, handles=handles)
    return figure
