"""Two ways to do the same, by the size of the message."""

from collections.abc import Mapping, Sequence

from distlab.drawing.colours import INK, RANKS
from distlab.drawing.figure import Picture, doubling, guide_lines, new, require, say
from distlab.drawing.units import words_of_size, words_of_time

STYLES = ((RANKS[0], "o", "-"), (RANKS[1], "s", "--"), (RANKS[2], "^", "-."), (RANKS[3], "D", ":"))


def times(records: list[dict], way: str) -> dict[int, float]:
    """Bytes -> median seconds, of one way, smallest size first. Held-out sizes are left out.

    Args:
        records: of the event `time`, each with way, size, seconds and held_out; each rank's are the same.
    """
    mine = [record for record in require(records, "time") if record["way"] == way and not record["held_out"]]
    return dict(sorted((record["size"], record["seconds"]) for record in mine))


def held_out(records: list[dict], way: str) -> tuple[int, float]:
    """(bytes, median seconds) of the size that is kept to test a fit with."""
    record = next(record for record in require(records, "time") if record["way"] == way and record["held_out"])
    return record["size"], record["seconds"]


def picture(lines: Mapping[str, Mapping[int, float]], title: str) -> Picture:
    """A line per way, both axes logarithmic.

    Args:
        lines: way -> (bytes -> seconds).
    """
    require(list(lines), "time")
    sizes: Sequence[int] = sorted({size for line in lines.values() for size in line})
    said = "; ".join(
        f"{way}: {words_of_time(line[min(line)])} for {words_of_size(min(line))}, "
        f"{words_of_time(line[max(line)])} for {words_of_size(max(line))}"
        for way, line in lines.items()
    )
    figure, (axes,) = new(3.3, f"Time by size. {said}.")
    guide_lines(axes, "both")
    for (way, line), (colour, marker, dash) in zip(lines.items(), STYLES, strict=False):
        milliseconds = [1e3 * line[size] for size in sorted(line)]
        axes.plot(sorted(line), milliseconds, dash, marker=marker, color=colour, mec=INK, mew=0.6, ms=6.5, label=way)
    axes.set_yscale("log")
    axes.yaxis.set_major_formatter("{x:g}")
    doubling(axes, sizes, [words_of_size(size) for size in sizes])
    say(axes, title, "size of the tensor on each rank", "milliseconds")
    axes.legend(loc="upper left", frameon=False, fontsize=9)
    return figure
