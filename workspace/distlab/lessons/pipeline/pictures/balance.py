"""Which stage of a pipeline is slowest, and where to cut so that it is as quick as can be."""

from collections.abc import Sequence
from itertools import accumulate

from distlab.drawing.colours import INK, PAPER, look
from distlab.drawing.figure import Picture, guide_lines, new, require, say


def split(costs: Sequence[float], stages: int) -> list[int]:
    """Cut layers that follow one another into stages, so that the slowest stage is as quick as can be.

    Args:
        costs: of each layer, 0 or more.

    Returns:
        Layers of each stage, each 1 or more. Where several cuts are as good, earlier stages have fewer layers.

    Raises:
        ValueError: there are more stages than layers, or none.

    >>> split([1, 1, 1, 1, 1, 1, 1, 1], 4), split([4, 1, 1, 1, 1], 2)
    ([2, 2, 2, 2], [1, 4])
    """
    if not 1 <= stages <= len(costs):
        raise ValueError(f"{len(costs)} layers cannot be cut into {stages} stages: use 1 to {len(costs)} stages")
    # Work from the last stage: best[i] is (the slowest stage's cost, layers of each stage) for the layers from i on.
    sums = [0, *accumulate(costs)]
    total = len(costs)
    best = {first: (sums[total] - sums[first], [total - first]) for first in range(total)}
    for more in range(1, stages):
        best = {
            first: min(
                (max(sums[cut] - sums[first], best[cut][0]), [cut - first, *best[cut][1]])
                for cut in range(first + 1, total - more + 1)
            )
            for first in range(total - more)
        }
    return best[0][1]


def picture(records: list[dict]) -> Picture:
    """A group of bars for each split, a bar for each stage; a mark on the slowest, which sets the pace.

    Args:
        records: of the event `balance`, each with rank, split (such as "1, 1, 1, 5"), stage, layers and
            milliseconds (that the stage takes for a microbatch).
    """
    groups: dict[str, list[dict]] = {}
    for record in sorted(require(records, "balance"), key=lambda one: one["stage"]):
        groups.setdefault(record["split"], []).append(record)
    groups = dict(sorted(groups.items(), key=lambda pair: -_slowest(pair[1])["milliseconds"]))
    said = "; ".join(
        f"layers {name}: " + ", ".join(f"stage {one['stage']} {one['milliseconds']:.1f}" for one in own)
        for name, own in groups.items()
    )
    figure, (axes,) = new(3.3, f"Milliseconds of each stage for one microbatch. {said}.")
    guide_lines(axes)
    most = max(record["milliseconds"] for record in records)
    width = 0.84 / max(len(own) for own in groups.values())
    for place, own in enumerate(groups.values()):
        for number, record in enumerate(own):
            its, x, height = look(record["rank"]), place + (number - (len(own) - 1) / 2) * width, record["milliseconds"]
            axes.bar(x, height, width, color=its.colour, edgecolor=PAPER, hatch=its.hatch)
            slowest = record is _slowest(own)
            words = f"{height:.1f}" + "\nslowest" * slowest
            weight = "bold" if slowest else "normal"
            style = {"ha": "center", "va": "bottom", "fontsize": 8, "color": INK, "weight": weight}
            axes.text(x, height + 0.01 * most, words, **style)
            layers = f"stage {record['stage']}"
            if height > 0.12 * most:
                axes.text(x, 0.02 * most, layers, ha="center", va="bottom", fontsize=8, color=its.text)
    axes.set_xticks(range(len(groups)), [f"layers {name}" for name in groups])
    axes.set_ylim(0, 1.18 * most)
    say(axes, "The slowest stage sets the pace", None, "milliseconds for a microbatch")
    return figure


def _slowest(records: list[dict]) -> dict:
    return max(records, key=lambda one: one["milliseconds"])
