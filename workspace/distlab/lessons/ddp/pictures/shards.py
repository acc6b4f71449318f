"""Who holds which sample: a grid of epochs and samples, coloured by rank."""

from typing import Any

from matplotlib.patches import Rectangle

from distlab.drawing import lanes
from distlab.drawing.colours import PAPER, look
from distlab.drawing.figure import Picture, new, require, say

TITLES = {
    False: "without set_epoch: every epoch deals the same hands",
    True: "with set_epoch: every epoch deals new hands",
}


def holders(records: list[dict], epoch: int, set_epoch: bool) -> dict[int, list[int]]:
    """Sample -> ranks that hold it in one epoch, in rank order.

    Args:
        records: of the event `shard`, each with rank, epoch, set_epoch and samples (indices).
    """
    held: dict[int, list[int]] = {}
    for record in sorted(records, key=lambda record: record["rank"]):
        if record["epoch"] == epoch and record["set_epoch"] == set_epoch:
            for sample in record["samples"]:
                held.setdefault(sample, []).append(record["rank"])
    return held


def hand(records: list[dict], rank: int, epoch: int, set_epoch: bool) -> list[int]:
    """The samples of one rank in one epoch, in the order in which it reads them."""
    wanted = rank, epoch, set_epoch
    return next(
        record["samples"] for record in records if (record["rank"], record["epoch"], record["set_epoch"]) == wanted
    )


def picture(records: list[dict]) -> Picture:
    """One panel without and one with set_epoch: columns are samples, rows are epochs.

    A sample that several ranks hold in one epoch is divided among them.
    """
    records = require(records, "shard")
    choices = sorted({record["set_epoch"] for record in records})
    epochs = sorted({record["epoch"] for record in records})
    ranks = sorted({record["rank"] for record in records})
    samples = 1 + max(max(record["samples"]) for record in records)
    alt = (
        f"Grid of {samples} samples over {len(epochs)} epochs, each cell coloured by the rank that holds the sample. "
        "Without set_epoch all rows are alike; with set_epoch each row differs."
    )
    figure, panels = new(0.62 * len(epochs) * len(choices) + 1.5, alt, rows=len(choices), sharex=True)
    for axes, choice in zip(panels, choices, strict=True):
        for row, epoch in enumerate(epochs):
            for sample, owners in holders(records, epoch, choice).items():
                for part, rank in enumerate(owners):
                    width, its = 1 / len(owners), look(rank)
                    left = sample - 0.5 + part * width
                    face: dict[str, Any] = {"facecolor": its.colour, "edgecolor": PAPER, "hatch": its.hatch}
                    axes.add_patch(Rectangle((left, row - 0.44), width, 0.88, **face))
                    size = 8 if len(owners) == 1 and samples <= 40 else 6
                    axes.text(left + width / 2, row, str(rank), ha="center", va="center", fontsize=size, color=its.text)
        axes.set_xlim(-0.6, samples - 0.4)
        lanes.lay(axes, epochs)
        last = axes is panels[-1]
        say(axes, TITLES[choice], "sample (its index in the data set)" if last else None, "epoch")
    handles = [Rectangle((0, 0), 1, 1, facecolor=look(rank).colour, hatch=look(rank).hatch) for rank in ranks]
    labels = [f"rank {rank}" for rank in ranks]
    figure.legend_below(len(ranks), handles=handles, labels=labels)
    return figure
