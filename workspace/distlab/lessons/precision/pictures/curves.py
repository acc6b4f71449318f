"""Loss and accuracy epoch by epoch, one line per way of training.

Draws what the training scripts `ddp` and `amp` reported.
"""

from distlab.drawing.colours import MARKERS, RANKS
from distlab.drawing.figure import Picture, guide_lines, new, require, say

LINES = ("-", "--", ":", "-.")


def picture(runs: dict[str, list[dict]], title: str) -> Picture:
    """Training loss on the left, validation accuracy on the right.

    Args:
        runs: way -> records of the event `epoch` of one rank, each with epoch, loss and val_accuracy (0 to 1).
        title: what the curves show.
    """
    for records in runs.values():
        require(records, "epoch")
    require(list(runs), "epoch")
    said = "; ".join(
        f"{way}: loss {records[-1]['loss']:.3f}, accuracy {records[-1]['val_accuracy']:.1%}"
        for way, records in runs.items()
    )
    figure, (left, right) = new(3.1, f"{title}. After the last epoch {said}.", columns=2)
    for axes, key, factor in ((left, "loss", 1), (right, "val_accuracy", 100)):
        guide_lines(axes)
        for number, (way, records) in enumerate(runs.items()):
            epochs, values = [record["epoch"] for record in records], [factor * record[key] for record in records]
            # Lines lie on each other, so each is thinner than the one below it.
            axes.plot(
                epochs,
                values,
                LINES[number % len(LINES)],
                color=RANKS[number % len(RANKS)],
                marker=MARKERS[number % len(MARKERS)],
                linewidth=4 - number if number < 3 else 1,
                ms=9 - 2 * number if number < 3 else 3,
                label=way if axes is left else None,
            )
        axes.set_xticks(sorted({record["epoch"] for records in runs.values() for record in records}))
    say(left, title, "epoch", "training loss")
    say(right, "", "epoch", "validation accuracy (%)")
    figure.legend_below(len(runs))
    return figure
