"""Who waits for whom: a graph of ranks with an arrow for each call that has not come back."""

import math
from dataclasses import dataclass

from matplotlib.axes import Axes
from matplotlib.patches import Circle, FancyArrowPatch

from distlab.drawing.colours import INK, RANKS, SOFT, look
from distlab.drawing.figure import Picture, new, require

RADIUS = 0.3


@dataclass(frozen=True)
class Wait:
    """A call that has not come back: `does` is its name, `peer` the rank it needs."""

    rank: int
    host: str
    does: str
    peer: int


def waits(records: list[dict]) -> list[Wait]:
    """The calls that were begun and never served, in rank order.

    Args:
        records: of the events `waits` and `served`, each with rank, host, does and peers, in the order in
            which the rank wrote them.
    """
    open_calls: dict[int, list[dict]] = {}
    for record in require(records, "waits"):
        mine = open_calls.setdefault(record["rank"], [])
        if record["event"] == "waits":
            mine.append(record)
        else:
            same = [call for call in mine if (call["does"], call["peers"]) == (record["does"], record["peers"])]
            mine.remove(same[0])
    return [
        Wait(rank, call["host"], call["does"], peer)
        for rank, calls in sorted(open_calls.items())
        for call in calls
        for peer in call["peers"]
    ]


def cycle(waiting: list[Wait]) -> list[int]:
    """Ranks that wait for each other in a circle, beginning with the lowest; empty when there is none.

    >>> cycle([Wait(0, "a", "recv", 2), Wait(1, "a", "recv", 0), Wait(2, "b", "recv", 1), Wait(3, "b", "recv", 0)])
    [0, 2, 1]
    """
    needs: dict[int, list[int]] = {}
    for wait in waiting:
        needs.setdefault(wait.rank, []).append(wait.peer)
    for start in sorted(needs):
        path = _back_to(start, start, needs, [start])
        if path:
            return path
    return []


def _back_to(start: int, at: int, needs: dict[int, list[int]], path: list[int]) -> list[int]:
    for peer in needs.get(at, []):
        if peer == start:
            return path
        if peer not in path:
            found = _back_to(start, peer, needs, [*path, peer])
            if found:
                return found
    return []


def explain(waiting: list[Wait]) -> str:
    """One sentence about who waits for whom.

    >>> explain([Wait(0, "node1", "recv", 1), Wait(1, "node2", "recv", 0)])
    'rank 0 waits in recv for rank 1, and rank 1 waits in recv for rank 0: a circle, so nobody can go on'
    """
    if not waiting:
        return "nobody waits"
    circle = cycle(waiting)
    named = [next(wait for wait in waiting if wait.rank == rank) for rank in circle] or waiting
    each = [f"rank {wait.rank} waits in {wait.does} for rank {wait.peer}" for wait in named]
    said = f"{', '.join(each[:-1])}, and {each[-1]}" if len(each) > 1 else each[0]
    return f"{said}: a circle, so nobody can go on" if circle else f"{said}: no circle, so somebody left or is late"


def _places(ranks: list[int]) -> dict[int, tuple[float, float]]:
    """Ranks on a circle, clockwise, the first one at the upper left."""
    turn = 2 * math.pi / len(ranks)
    angles = [0.75 * math.pi - index * turn for index in range(len(ranks))]
    return {rank: (1.5 * math.cos(a), 1.1 * math.sin(a)) for rank, a in zip(ranks, angles, strict=True)}


def _arrow(axes: Axes, start: tuple[float, float], end: tuple[float, float], words: str, caught: bool) -> None:
    colour = RANKS[1] if caught else SOFT
    bow = FancyArrowPatch(
        start,
        end,
        arrowstyle="-|>",
        mutation_scale=18,
        color=colour,
        linewidth=2,
        shrinkA=27,
        shrinkB=27,
        connectionstyle="arc3,rad=-0.12",
    )
    axes.add_patch(bow)
    # The label is outside the curve, where it meets no other arrow.
    middle = [(a + b) / 2 for a, b in zip(start, end, strict=True)]
    far = math.hypot(*middle) or 1.0
    x, y = (part * (1 + 0.24 / far) for part in middle)
    axes.text(x, y, words, ha="center", va="center", fontsize=9, color=INK)


def picture(records: list[dict]) -> Picture:
    """A circle per rank, an arrow from each that waits to the rank that it needs.

    Args:
        records: of the events `waits` and `served`, as `waits` takes them.
    """
    waiting = waits(records)
    caught = set(cycle(waiting))
    hosts = {record["rank"]: record["host"] for record in records}
    ranks = sorted(hosts | {wait.peer: "" for wait in waiting})
    sentence = explain(waiting)
    figure, (axes,) = new(3.3, f"Graph of who waits for whom: {sentence}.")
    places = _places(ranks)
    for rank, place in places.items():
        its = look(rank)
        axes.add_patch(Circle(place, RADIUS, facecolor=its.colour, edgecolor=INK, hatch=its.hatch, zorder=3))
        axes.text(*place, f"rank {rank}", ha="center", va="center", fontsize=9, color=its.text, zorder=4)
        side = -1 if place[0] < 0 else 1
        words = hosts.get(rank, "")
        axes.text(
            place[0] + side * 0.42,
            place[1],
            words,
            ha="right" if side < 0 else "left",
            va="center",
            fontsize=9,
            color=SOFT,
        )
    for wait in waiting:
        _arrow(axes, places[wait.rank], places[wait.peer], wait.does, {wait.rank, wait.peer} <= caught)
    axes.set_xlim(-2.6, 2.6)
    axes.set_ylim(-1.45, 1.45)
    axes.set_aspect("equal")
    axes.axis("off")
    if caught:
        title = f"{len(caught)} of {len(ranks)} ranks wait for each other in a circle"
    else:
        title = f"{len(waiting)} calls wait, none in a circle" if waiting else "Nobody waits"
    axes.set_title(title, fontsize=10.5, loc="left")
    return figure
