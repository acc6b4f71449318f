"""Images per second of the same training in several ways: DDP, Horovod over gloo, Horovod over MPI.

Draws what the training scripts `ddp` and `horovod_ddp` reported.
"""

from collections.abc import Mapping

from distlab.drawing.colours import INK, look
from distlab.drawing.figure import Picture, guide_lines, new, require, say


def totals(ways: Mapping[str, list[dict]]) -> dict[str, float]:
    """Way -> images per second of all its ranks together.

    Args:
        ways: way -> its records of the event `end`, one of each rank.
    """
    return {way: sum(end["images_per_second"] for end in require(records, "end")) for way, records in ways.items()}


def picture(ways: Mapping[str, list[dict]]) -> Picture:
    """A bar per way, a piece of it for each rank.

    Args:
        ways: "Horovod over gloo" -> its records of the event `end`, each with rank and images_per_second.

    Raises:
        ValueError: there are none.
    """
    everything = totals({**ways} or {"": []})
    said = "; ".join(
        f"{way}: {everything[way]:,.0f} ("
        + ", ".join(f"rank {record['rank']} {record['images_per_second']:,.0f}" for record in records)
        + ")"
        for way, records in ways.items()
    )
    figure, (axes,) = new(0.55 * len(ways) + 1.0, f"Images per second of the same training. {said}.")
    guide_lines(axes, "x")
    top = max(everything.values())
    for row, (way, records) in enumerate(ways.items()):
        left = 0.0
        for record in sorted(records, key=lambda record: record["rank"]):
            its, width = look(record["rank"]), record["images_per_second"]
            axes.barh(row, width, 0.62, left=left, color=its.colour, edgecolor="white", hatch=its.hatch)
            if width > 0.08 * top:
                place = left + width / 2, row
                axes.text(*place, f"rank {record['rank']}", ha="center", va="center", fontsize=8, color=its.text)
            left += width
        axes.text(left + 0.015 * top, row, f"{everything[way]:,.0f}", va="center", fontsize=9, color=INK)
    axes.set_yticks(range(len(ways)), list(ways))
    axes.set_ylim(len(ways) - 0.5, -0.5)
    axes.set_xlim(0, 1.14 * top)
    axes.xaxis.set_major_formatter("{x:,.0f}")
    say(axes, "The same training, the same ranks", "images per second, all ranks", None)
    return figure
