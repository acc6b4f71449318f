"""Time of a step over the number of pieces in which a batch goes through two devices."""

from distlab.drawing.colours import INK, RANKS, SOFT
from distlab.drawing.figure import Picture, doubling, guide_lines, new, require, say


def times(records: list[dict]) -> dict[int, float]:
    """Pieces -> milliseconds of a step, fewest pieces first.

    Args:
        records: of the event `sweep`, each with splits, milliseconds and overlaps.
    """
    return dict(sorted((record["splits"], record["milliseconds"]) for record in require(records, "sweep")))


def picture(records: list[dict]) -> Picture:
    """A line over the number of pieces, beside the time of a whole batch. The title says who could overlap.

    Raises:
        ValueError: there is no record, or none of a whole batch.
    """
    line = times(records)
    if 1 not in line:
        raise ValueError("no record of a whole batch to compare with: sweep with 1 among the splits")
    plain, best = line[1], min(line, key=line.__getitem__)
    said = ", ".join(f"{splits}: {time:.1f}" for splits, time in line.items())
    figure, (axes,) = new(3.0, f"Milliseconds per step by number of pieces. {said}.")
    guide_lines(axes)
    axes.axhline(plain, color=SOFT, linestyle="--", linewidth=1.2)
    axes.plot(list(line), list(line.values()), "-o", color=RANKS[0], mec=INK, mew=0.6, ms=6.5)
    doubling(axes, list(line), list(line))
    axes.set_ylim(0, 1.15 * max(line.values()))
    # The words stand on the side of the dashed line where the curve is not.
    below = line[max(line)] > plain
    axes.annotate(
        f"the whole batch: {plain:.3g} ms",
        (1, plain),
        (1, -5 if below else 5),
        xycoords=("axes fraction", "data"),
        textcoords=("axes fraction", "offset points"),
        ha="right",
        va="top" if below else "bottom",
        fontsize=9,
        color=INK,
    )
    if not all(record["overlaps"] for record in records):
        most = max(line)
        title = (
            f"Both stages on one device: nothing overlaps, {most} pieces take {line[most] / plain:.1f} times as long"
        )
    elif best == 1:
        title = "Two devices: pieces save no time here"
    else:
        title = f"Two devices: {best} pieces take {line[best] / plain:.2f} of the whole batch's time"
    say(axes, title, "pieces of a batch", "milliseconds per step")
    return figure
