"""What each rank holds before and after a collective, and how much travels for it."""

from collections.abc import Sequence
from typing import Any

from matplotlib.axes import Axes
from matplotlib.patches import FancyArrowPatch, Rectangle

from distlab.drawing.colours import INK, PALE, PAPER, SOFT, look
from distlab.drawing.figure import Picture, bare, new, require

EMPTY = -1
# Their results are sums, which no rank had before.
REDUCING = ("reduce", "all_reduce", "reduce_scatter")
WORDS = {
    "broadcast": "one to all",
    "scatter": "one deals out",
    "gather": "one collects",
    "reduce": "one gets the sum",
    "all_gather": "all collect",
    "all_reduce": "all get the sum",
    "reduce_scatter": "each gets a part of the sum",
    "all_to_all": "each to each",
}
# Name -> (what all ranks together must send at least, as words and as a multiple of S). S is one whole
# vector of n parts. For all_reduce see Patarasuk and Yuan 2009, Bandwidth Optimal All-reduce Algorithms.
LEAST = {
    "broadcast": ("(n-1) S", lambda n: n - 1),
    "scatter": ("(n-1)/n S", lambda n: (n - 1) / n),
    "gather": ("(n-1)/n S", lambda n: (n - 1) / n),
    "reduce": ("(n-1) S", lambda n: n - 1),
    "all_gather": ("(n-1) S", lambda n: n - 1),
    "reduce_scatter": ("(n-1) S", lambda n: n - 1),
    "all_reduce": ("2 (n-1) S", lambda n: 2 * (n - 1)),
    "all_to_all": ("(n-1) S", lambda n: n - 1),
    "barrier": ("0", lambda n: 0),
}


def held(records: list[dict], when: str) -> dict[str, list[list[float]]]:
    """Name of a collective -> what each rank held, in rank order.

    Args:
        records: of the event `collective`, each with rank, name, before and after (lists of numbers).
        when: 'before' or 'after'.
    """
    found: dict[str, list[list[float]]] = {}
    for record in sorted(require(records, "collective"), key=lambda record: record["rank"]):
        found.setdefault(record["name"], []).append(record[when])
    return found


def origins(before: list[list[float]], values: Sequence[float]) -> list[int | str]:
    """Where each number comes from: a rank, 'sum' when it is the sum over all ranks, or 'nowhere'.

    A number that a rank had before is that rank's, also when it could be a sum.

    >>> origins([[0, 1], [10, 11]], [11, 12, -1, 5])
    [1, 'sum', 'nowhere', 'nowhere']
    """
    owner = {value: rank for rank, row in enumerate(before) for value in row if value != EMPTY}
    sums = {sum(column) for column in zip(*before, strict=False) if EMPTY not in column}
    return [owner.get(value, "sum" if value in sums else "nowhere") for value in values]


def cell(axes: Axes, x: float, y: float, value: float, origin: int | str, ranks: int, width: float = 1.0) -> None:
    """A number in a box: in the colour of its rank, in stripes of all when it is of all, empty when it is none."""
    left, bottom, wide, high = x + 0.05, y - 0.42, width - 0.1, 0.84
    text, box = INK, None
    face: dict[str, Any]
    if origin == "sum":
        for rank in range(ranks):
            its, part = look(rank), wide / ranks
            face = {"facecolor": its.colour, "hatch": its.hatch, "edgecolor": "none"}
            axes.add_patch(Rectangle((left + rank * part, bottom), part, high, **face))
        box = {"facecolor": PAPER, "edgecolor": "none", "pad": 0.8}
    elif origin == "nowhere":
        face = {"facecolor": PAPER, "edgecolor": SOFT, "linestyle": ":", "linewidth": 0.8}
        axes.add_patch(Rectangle((left, bottom), wide, high, **face))
    else:
        its = look(int(origin))
        text = its.text
        axes.add_patch(Rectangle((left, bottom), wide, high, facecolor=its.colour, hatch=its.hatch, edgecolor=PAPER))
    if origin != "nowhere":
        axes.text(x + width / 2, y, f"{value:g}", ha="center", va="center", fontsize=8, color=text, bbox=box)


def _arrow(axes: Axes, start: float, end: float, y: float) -> None:
    shape: dict[str, Any] = {"arrowstyle": "-|>", "mutation_scale": 13, "color": SOFT, "linewidth": 1.4}
    axes.add_patch(FancyArrowPatch((start, y), (end, y), **shape))


def _panel(axes: Axes, name: str, before: list[list[float]], after: list[list[float]]) -> None:
    ranks = len(before)
    width = max(map(len, before))
    start = width + 1.4
    reduces = name in REDUCING
    for rank in range(ranks):
        for place, value in enumerate(before[rank]):
            cell(axes, place, rank, value, "nowhere" if value == EMPTY else rank, ranks)
        whose = origins(before, after[rank])
        if reduces:
            # A sum can equal a number that some rank had, such as 0 + 10.
            sums = {sum(column) for column in zip(*before, strict=True)}
            whose = ["sum" if value in sums else origin for value, origin in zip(after[rank], whose, strict=True)]
        for place, (value, origin) in enumerate(zip(after[rank], whose, strict=True)):
            cell(axes, start + place, rank, value, origin, ranks)
    _arrow(axes, width + 0.2, start - 0.2, (ranks - 1) / 2)
    axes.set_xlim(-0.1, start + max(map(len, after)) + 0.1)
    axes.set_ylim(ranks - 0.4, -0.6)
    axes.set_yticks(range(ranks), [f"rank {rank}" for rank in range(ranks)])
    axes.set_xticks([width / 2, start + max(map(len, after)) / 2], ["before", "after"])
    bare(axes)
    axes.set_title(f"{name}: {WORDS[name]}", fontsize=10, loc="left")


def _say(name: str, before: list[list[float]], after: list[list[float]]) -> str:
    """What ranks hold afterwards; ranks that hold the same kind of thing are named together."""
    holders: dict[str, list[int]] = {}
    for rank, values in enumerate(after):
        what = "sums" if name in REDUCING else f"numbers of {_from(origins(before, values))}"
        holders.setdefault(f"{len(values)} {what}" if values else "nothing new", []).append(rank)
    kinds = [f"{_ranks(ranks)} with {what}" for what, ranks in holders.items()]
    return f"{name} leaves {', '.join(kinds)}"


def _ranks(ranks: list[int]) -> str:
    *front, last = map(str, ranks)
    return f"ranks {', '.join(front)} and {last}" if front else f"rank {last}"


def _from(whose: list[int | str]) -> str:
    ranks = sorted({rank for rank in whose if isinstance(rank, int)})
    return f"rank {ranks[0]}" if len(ranks) == 1 else f"{len(ranks)} ranks"


def picture(records: list[dict], names: Sequence[str]) -> Picture:
    """A panel per collective: a row per rank, its numbers before on the left and after on the right.

    Args:
        records: of the event `collective`, each with rank, name, before and after.
        names: which of them, two in a row.
    """
    before, after = held(records, "before"), held(records, "after")
    missing = [name for name in names if name not in before]
    if missing:
        raise ValueError(f"no records of {', '.join(missing)}: there are {', '.join(before)}")
    rows = -(-len(names) // 2)
    ranks = len(next(iter(before.values())))
    said = ". ".join(_say(name, before[name], after[name]) for name in names)
    figure, panels = new(rows * (0.3 * ranks + 0.75), f"Before and after. {said}.", rows=rows, columns=2)
    for axes, name in zip(panels, names, strict=False):
        _panel(axes, name, before[name], after[name])
    for axes in panels[len(names) :]:
        axes.axis("off")
    return figure


def picture_of_ops(records: list[dict]) -> Picture:
    """all_reduce with each operation: above what the ranks hold, below what all of them get.

    Args:
        records: of the event `op`, each with rank, name, before, after (None where this backend refuses) and refused.
    """
    records = sorted(require(records, "op"), key=lambda record: record["rank"])
    names = list(dict.fromkeys(record["name"] for record in records))
    ranks = sorted({record["rank"] for record in records})
    before = [next(record["before"] for record in records if record["rank"] == rank) for rank in ranks]
    results = {name: next(record["after"] for record in records if record["name"] == name) for name in names}
    said = "; ".join(
        f"{name} gives {', '.join(f'{value:g}' for value in after)}" if after else f"{name} is refused"
        for name, after in results.items()
    )
    columns = 4
    rows = -(-len(names) // columns)
    figure, panels = new(rows * (0.26 * len(ranks) + 1.05), f"all_reduce by operation. {said}.", rows, columns)
    for axes, name in zip(panels, names, strict=False):
        for row, values in enumerate(before):
            for place, value in enumerate(values):
                cell(axes, place, row, value, ranks[row], len(ranks))
        result = len(ranks) + 0.45
        for place, value in enumerate(results[name] or []):
            column = [row[place] for row in before]
            # The smallest and the largest number are some rank's own; a product is no rank's.
            own = name in ("MIN", "MAX") and value in column
            cell(axes, place, result, value, ranks[column.index(value)] if own else "sum", len(ranks))
        if not results[name]:
            axes.text(len(before[0]) / 2, result, "refused here", ha="center", va="center", fontsize=8.5, color=INK)
        axes.axhline(len(ranks) - 0.28, color=PALE, linewidth=1.5)
        axes.set_xlim(-0.1, len(before[0]) + 0.1)
        axes.set_ylim(result + 0.6, -0.6)
        first = axes in panels[::columns]
        labels = [f"rank {rank}" for rank in ranks] + ["all get"]
        axes.set_yticks([*range(len(ranks)), result], labels if first else [""] * len(labels))
        axes.set_xticks([])
        bare(axes)
        axes.set_title(name, fontsize=10, loc="left")
    for axes in panels[len(names) :]:
        axes.axis("off")
    return figure


def traffic(records: list[dict]) -> list[dict]:
    """A row per collective: what must travel at least, what the sockets counted, and the busiest rank's part, in MB.

    Args:
        records: of the event `bytes`, each with rank, name, size (bytes of one vector) and sent (None where
            nobody counts).
    """
    by_name: dict[str, list[dict]] = {}
    for record in require(records, "bytes"):
        by_name.setdefault(record["name"], []).append(record)
    rows = []
    for name, (formula, least) in LEAST.items():
        if name not in by_name:
            continue
        mine = by_name[name]
        sent = [record["sent"] for record in mine]
        counted = None if None in sent else sum(sent) / 1e6
        rows.append(
            {
                "collective": name,
                "at least": formula,
                "at least, MB": round(least(len(mine)) * mine[0]["size"] / 1e6, 3),
                "counted, MB": counted if counted is None else round(counted, 3),
                "busiest rank, MB": None if counted is None else round(max(sent) / 1e6, 3),
            }
        )
    return rows
