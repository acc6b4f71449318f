"""Which stage of a pipeline is slowest, and where to cut so that it is as quick as can be."""

from typing import Any

from distlab.drawing.colours import INK, PAPER, look
from distlab.drawing.figure import Picture, guide_lines, new, require, say
from distlab.lessons.pipeline.cuts import split

__all__ = ["picture", "split"]


def picture(records: list[dict]) -> Picture:
    """A group of bars for each split, a bar for each stage; a mark on the slowest, which sets the pace.

    Args:
        records: of the event `balance`, each with rank, split (such as "1, 1, 1, 5"), stage, layers and
            milliseconds (that the stage takes for a microbatch).
    """
    groups: dict[str, list[dict]] = {}
    for record in sorted(require(records, "balance"), key=lambda record: record["stage"]):
        groups.setdefault(record["split"], []).append(record)
    groups = dict(sorted(groups.items(), key=lambda pair: -_slowest(pair[1])["milliseconds"]))
    said = "; ".join(
        f"layers {name}: " + ", ".join(f"stage {record['stage']} {record['milliseconds']:.1f}" for record in own)
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
            style: dict[str, Any] = {"ha": "center", "va": "bottom", "fontsize": 8, "color": INK, "weight": weight}
            axes.text(x, height + 0.01 * most, words, **style)
            layers = f"stage {record['stage']}"
            if height > 0.12 * most:
                axes.text(x, 0.02 * most, layers, ha="center", va="bottom", fontsize=8, color=its.text)
    axes.set_xticks(range(len(groups)), [f"layers {name}" for name in groups])
    axes.set_ylim(0, 1.18 * most)
    say(axes, "The slowest stage sets the pace", None, "milliseconds for a microbatch")
    return figure


def _slowest(records: list[dict]) -> dict:
    return max(records, key=lambda record: record["milliseconds"])
