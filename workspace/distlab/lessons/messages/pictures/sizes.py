"""Two ways to do the same, by the size of the message."""

from collections.abc import Mapping, Sequence

from distlab.drawing.colours import INK, RANKS
from distlab.drawing.figure import Picture, guide_lines, new, require, say
from distlab.drawing.units import words_of_size, words_of_time

STYLES = ((RANKS[0], "o", "-"), (RANKS[1], "s", "--"), (RANKS[2], "^", "-."), (RANKS[3], "D", ":"))


def times(records: list[dict], way: str) -> dict[int, float]:
    """Bytes -> median seconds, of one way, smallest size first. Held-out sizes are left out.

    Args:
        records: of the event `time`, each with way, size, seconds and held_out; each rank's are the same.
    """
    mine = [one for one in require(records, "time") if one["way"] == way and not one["held_out"]]
    return dict(sorted((one["size"], one["seconds"]) for one in mine))


def held_out(records: list[dict], way: str) -> tuple[int, float]:
    """(bytes, median seconds) of the size that is kept to test a fit with."""
    one = next(one for one in require(records, "time") if one["way"] == way and one["held_out"])
    return one["size"], one["seconds"]


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
    axes.set_xscale("log", base=2)
    axes.set_yscale("log")
    axes.set_xticks(sizes, [words_of_size(size) for size in sizes])
    axes.yaxis.set_major_formatter("{x:g}")
    axes.minorticks_off()
    say(axes, title, "size of the tensor on each rank", "milliseconds")
    axes.legend(loc="upper left", frameon=False, fontsize=9)
    return figure
