"""Gradients of a few weights: each rank's own, their average, and one process on the whole batch."""

from distlab.drawing.colours import INK, look
from distlab.drawing.figure import Picture, guide_lines, new, require, say


def picture(records: list[dict]) -> Picture:
    """A column per weight: a marker per rank, a line where DDP's average lies, a ring for one process.

    Args:
        records: of the event `gradient` and one case, each with rank, own, averaged and whole.
    """
    records = sorted(require(records, "gradient"), key=lambda record: record["rank"])
    first = records[0]
    places = range(len(first["own"]))
    alt = (
        f"For {len(first['own'])} weights, the gradients of {len(records)} ranks scatter. "
        "The average that DDP leaves on every rank lies on the gradient of one process with the whole batch."
    )
    figure, (axes,) = new(3.4, alt)
    guide_lines(axes)
    for record in records:
        its, spread = look(record["rank"]), 0.09 * (record["rank"] - (len(records) - 1) / 2)
        x = [place + spread for place in places]
        label = f"rank {record['rank']}, own"
        axes.plot(x, record["own"], its.marker, color=its.colour, mec=INK, mew=0.5, ms=6.5, label=label)
    axes.hlines(
        first["averaged"],
        [place - 0.34 for place in places],
        [place + 0.34 for place in places],
        color=INK,
        linewidth=1.8,
        label="after backward, on every rank",
    )
    axes.plot(places, first["whole"], "o", mfc="none", mec=INK, mew=1.4, ms=13, label="one process, whole batch")
    axes.set_xticks(list(places))
    say(axes, "DDP's average is the whole batch's gradient", "weight (its index)", "gradient (loss per unit of weight)")
    figure.legend_below(3)
    return figure
