"""What goes over the link between hosts in one step, and how long that takes on links of several speeds."""

from typing import Any

from distlab.drawing.colours import INK, RANKS
from distlab.drawing.figure import Picture, guide_lines, new, require, say
from distlab.drawing.units import words_of_size, words_of_time
from distlab.measure.alpha_beta import AlphaBeta

# Gbit/s: of an office, of a server room, of a cluster.
SPEEDS = (1, 10, 100)


def busiest(records: list[dict]) -> dict[str, int]:
    """Layout -> bytes that a host sends to others in one step, the one that sends most.

    Hosts send at the same time, each in its own direction, so theirs do not add up.

    Args:
        records: of the event `links`, each with layout, rank, host and to_other_host.
    """
    sent: dict[str, dict[str, int]] = {}
    for record in require(records, "links"):
        hosts = sent.setdefault(record["layout"], {})
        hosts[record["host"]] = hosts.get(record["host"], 0) + record["to_other_host"]
    return {layout: max(hosts.values()) for layout, hosts in sent.items()}


def seconds(size: int, gigabits: float) -> float:
    """Time of so many bytes on a link of so many Gbit/s that does nothing else; its latency is left out.

    >>> seconds(125_000_000, 10)
    0.1
    """
    return AlphaBeta(0.0, gigabits * 1e9 / 8, 0.0).seconds(size)


def table(records: list[dict]) -> list[dict]:
    """A row per layout: what goes between hosts in one step, and how long that takes at each speed, in words."""
    return [
        {"layout": layout, "sent in a step": words_of_size(size)}
        | {f"at {speed} Gbit/s": words_of_time(seconds(size, speed)) for speed in SPEEDS}
        for layout, size in busiest(records).items()
    ]


def picture(records: list[dict]) -> Picture:
    """A line for each layout over the link's speed, both axes logarithmic.

    Simulated hosts have no slow link: bytes are measured, times are worked out.

    Args:
        records: as `busiest` takes them.

    Raises:
        ValueError: there are none, or nothing goes between hosts.
    """
    sizes = dict(sorted(busiest(records).items(), key=lambda pair: pair[1]))
    if not all(sizes.values()):
        raise ValueError("a layout sends nothing to another host: run on two hosts, such as node1:2,node2:2")
    times = {layout: [seconds(size, speed) for speed in SPEEDS] for layout, size in sizes.items()}
    said = "; ".join(
        f"{layout}, {words_of_size(sizes[layout])}: "
        + ", ".join(f"{words_of_time(time)} at {speed} Gbit/s" for speed, time in zip(SPEEDS, own, strict=True))
        for layout, own in times.items()
    )
    figure, (axes,) = new(3.3, f"Time of one step's bytes on the link between hosts. {said}.")
    guide_lines(axes)
    for number, (layout, own) in enumerate(times.items()):
        style: dict[str, Any] = {
            "color": RANKS[number],
            "mec": INK,
            "ms": 7,
            "label": f"{layout}: {words_of_size(sizes[layout])}",
        }
        axes.plot(SPEEDS, [1000 * time for time in own], "os"[number % 2] + ("-", "--")[number % 2], **style)
        for speed, time in zip(SPEEDS, own, strict=True):
            place: dict[str, Any] = {"xytext": (6, 5), "textcoords": "offset points", "fontsize": 8.5, "color": INK}
            axes.annotate(words_of_time(time), (speed, 1000 * time), **place)
    axes.set_xscale("log")
    axes.set_yscale("log")
    axes.margins(y=0.15)
    axes.set_xticks(SPEEDS, [f"{speed} Gbit/s" for speed in SPEEDS])
    axes.set_xlim(SPEEDS[0] / 1.3, SPEEDS[-1] * 2.2)
    axes.yaxis.set_major_formatter("{x:g}")
    axes.minorticks_off()
    low, *_, high = sizes
    title = f"{low[0].upper()}{low[1:]}: {sizes[high] / sizes[low]:.0f} times fewer bytes on the link"
    say(axes, title, "speed of the link between hosts", "milliseconds for one step's bytes")
    axes.legend(frameon=False, fontsize=8.5, loc="upper right")
    return figure
