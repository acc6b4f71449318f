"""What an elastic job lost and kept when a rank was killed: its steps, its samples, and when each rank worked.

Records are those of the event `elastic` of the experiment `elastic`. A **life** is the time between two changes
of the world: life 0 ends when a rank is lost.
"""

from collections import Counter
from typing import Any

from matplotlib.axes import Axes
from matplotlib.lines import Line2D
from matplotlib.patches import Patch, Rectangle
from matplotlib.transforms import blended_transform_factory

from distlab.drawing import lanes
from distlab.drawing.colours import INK, PALE, PAPER, RANKS, SOFT, look
from distlab.drawing.figure import WIDTH, Picture, new, require, say

LANE = 0.7
# Inches: about what lanes have of the width, and what a digit takes.
ROOM, DIGIT = WIDTH - 1.2, 0.07


def _of(records: list[dict], *whats: str) -> list[dict]:
    return [record for record in require(records, "elastic") if record["what"] in whats]


def last_commit(records: list[dict]) -> int:
    """The step of the last commit before a rank was lost, or of the last of all; 0 when there was none."""
    return max((record["step"] for record in _of(records, "commit") if record["life"] == 0), default=0)


def _parted(records: list[dict]) -> tuple[list[dict], list[dict]]:
    """The records of steps that count in the end, and of those that were thrown away."""
    # Life -> the last of its steps that counts, for each life that ended with a loss.
    until = {record["life"]: record["step"] for record in _of(records, "restored")}
    parted: tuple[list[dict], list[dict]] = ([], [])
    for record in _of(records, "step"):
        parted[record["step"] > until.get(record["life"], record["step"])].append(record)
    return parted


def _each_once(steps: list[dict]) -> list[int]:
    return [step for _, step in sorted({(record["life"], record["step"]) for record in steps})]


def lost(records: list[dict]) -> list[int]:
    """The steps that were done and thrown away, in order: those after the last commit."""
    return _each_once(_parted(records)[1])


def lasting(records: list[dict]) -> list[int]:
    """The steps that count in the end, in the order in which they were done; a step done twice would be there twice."""
    return _each_once(_parted(records)[0])


def samples(records: list[dict]) -> dict[int, int]:
    """Sample (its index) -> how often the steps that count saw it, on all ranks together."""
    return dict(sorted(Counter(sample for record in _parted(records)[0] for sample in record["samples"]).items()))


def worlds(records: list[dict]) -> list[tuple[float, float, int]]:
    """(begin, end, world size) of each life: when its first step begins, and its last ends or is cut short."""
    found = []
    for life in sorted({record["life"] for record in _of(records, "step")}):
        own = [record for record in _of(records, "step", "killed") if record["life"] == life]
        begin, end = min(record["began"] for record in own), max(record["seconds"] for record in own)
        found.append((begin, end, own[0]["world_size"]))
    return found


def _spans(own: list[dict]) -> list[dict]:
    """A rank's steps, and those that it began and could not end since it or another was killed."""
    spans, free = [], 0.0
    for record in own:
        if record["what"] in ("step", "killed"):
            spans.append(record)
        elif record["what"] == "lost":
            spans.append(record | {"began": free, "step": record["step"] + 1})
        free = record["seconds"]
    return spans


def _steps(axes: Axes, row: int, spans: list[dict], kept: set[tuple[int, int]], inch: float) -> None:
    """A rank's boxes with the numbers of their steps; those that were thrown away are hatched.

    Args:
        kept: (life, step) of all that count.
        inch: time that is an inch long.
    """
    for record in spans:
        its, width = look(record["first_rank"]), record["seconds"] - record["began"]
        away = record["what"] != "step" or (record["life"], record["step"]) not in kept
        face: dict[str, Any] = {"facecolor": its.colour, "edgecolor": PAPER}
        if away:
            face = {"facecolor": PAPER, "edgecolor": its.colour, "hatch": "////"}
        axes.add_patch(Rectangle((record["began"], row - LANE / 2), width, LANE, **face))
        if record["what"] != "killed" and width > inch * DIGIT * len(str(record["step"])):
            ink, paper = (INK, PAPER) if away else (its.text, None)
            lanes.number(axes, (record["began"] + width / 2, row), record["step"], ink, paper)


def _back(axes: Axes, row: int, own: list[dict], inch: float) -> None:
    """To which step a rank goes back, between its loss and the first step that it does again."""
    for here, there in zip(own, own[1:], strict=False):
        if here["what"] == "restored" and there["what"] == "resized":
            steps = (record for record in own if record["what"] == "step" and record["life"] == there["life"])
            until = next((step["began"] for step in steps), None)
            if until and until - here["seconds"] > inch * DIGIT * 6:
                words: dict[str, Any] = {"ha": "center", "va": "center", "fontsize": 7.5, "color": INK}
                axes.text((here["seconds"] + until) / 2, row, f"back to\nstep {here['step']}", **words)


def _marks(axes: Axes, row: int, records: list[dict]) -> None:
    for record in records:
        if record["what"] == "commit":
            axes.plot(record["seconds"], row - LANE / 2 - 0.05, "v", color=INK, markersize=5, clip_on=False)
        elif record["what"] == "killed":
            axes.plot(record["seconds"], row, "X", color=RANKS[1], markersize=13, markeredgecolor=PAPER, zorder=5)
        elif record["what"] == "dropped":
            axes.plot(record["seconds"], row, "s", color=SOFT, markersize=8, markeredgecolor=PAPER, zorder=5)


def _above(axes: Axes, found: list[tuple[float, float, int]]) -> None:
    """The world size of each life, and how long nobody trained between two."""
    place = blended_transform_factory(axes.transData, axes.transAxes)
    for begin, end, size in found:
        axes.plot([begin, end], [1.03, 1.03], transform=place, color=INK, linewidth=1.5, clip_on=False)
        words: dict[str, Any] = {"ha": "center", "va": "bottom", "fontsize": 9, "color": INK}
        axes.text((begin + end) / 2, 1.05, f"world size {size}", transform=place, **words)
    for (_, end, _), (begin, _, _) in zip(found, found[1:], strict=False):
        axes.axvspan(end, begin, facecolor=PALE, zorder=0)
        axes.text((begin + end) / 2, 1.05, f"{begin - end:.1f} s", transform=place, **words | {"color": SOFT})


def _whence(records: list[dict]) -> str:
    step = last_commit(records)
    return f"the commit of step {step}" if step else "the start, since nothing was committed"


def _words(records: list[dict], found: list[tuple[float, float, int]]) -> str:
    said = []
    for record in _of(records, "killed"):
        said.append(f"Rank {record['first_rank']} on {record['hvd_host']} is killed in step {record['step']}")
    for record in _of(records, "dropped"):
        said.append(f"rank {record['first_rank']} is given up with its host {record['hvd_host']}")
    if len(found) > 1:
        gap = found[1][0] - found[0][1]
        said.append(f"the others go on {gap:.1f} s later from {_whence(records)}")
        said.append(f"steps thrown away and done again: {', '.join(map(str, lost(records))) or 'none'}")
        said.append(f"world size {' then '.join(str(size) for *_, size in found)}")
    return "; ".join([*said, f"{len(lasting(records))} steps count"])


def picture(records: list[dict]) -> Picture:
    """A row for each rank over time: its steps, commits, and where a rank was killed; the world size above.

    Args:
        records: of the event `elastic`.

    Raises:
        ValueError: there are no records, or no step among them.
    """
    require(_of(records, "step"), "elastic")
    found, ranks = worlds(records), sorted({(record["first_rank"], record["hvd_host"]) for record in records})
    alt = f"Elastic training over time, a row for each rank. {_words(records, found)}."
    figure, (axes,) = new(0.5 * len(ranks) + 1.6, alt)
    begin, end = found[0][0], found[-1][1]
    inch, kept = (end - begin) / ROOM, {(record["life"], record["step"]) for record in _parted(records)[0]}
    for row, (rank, _) in enumerate(ranks):
        own = [record for record in records if record["first_rank"] == rank]
        _steps(axes, row, _spans(own), kept, inch)
        _back(axes, row, own, inch)
        _marks(axes, row, own)
    lanes.lay(axes, [f"rank {rank}, {host}" for rank, host in ranks])
    axes.set_xlim(begin - 0.01 * (end - begin), end + 0.01 * (end - begin))
    _above(axes, found)
    say(axes, "", "seconds since horovodrun was started", None)
    # Above the world sizes.
    axes.set_title(_title(records), fontsize=10.5, loc="left", pad=24)
    figure.legend(handles=_handles(), loc="outside lower center", ncols=5, frameon=False, fontsize=9)
    return figure


def _title(records: list[dict]) -> str:
    killed = _of(records, "killed")
    if not killed:
        return "Nobody is lost"
    who = f"Rank {killed[0]['first_rank']} is killed in step {killed[0]['step']}"
    return f"{who}: the others go on from {_whence(records)}"


def _handles() -> list[Line2D | Patch]:
    dot: dict[str, Any] = {"linestyle": "none", "markeredgecolor": PAPER}
    return [
        Patch(facecolor=SOFT, edgecolor=PAPER, label="step that counts"),
        Patch(facecolor=PAPER, edgecolor=SOFT, hatch="////", label="thrown away"),
        Line2D([], [], marker="v", color=INK, markersize=6, label="commit", **dot),
        Line2D([], [], marker="X", color=RANKS[1], markersize=11, label="killed", **dot),
        Line2D([], [], marker="s", color=SOFT, markersize=8, label="given up with its host", **dot),
    ]
