"""What an elastic job lost and kept when a rank was killed: its steps, its samples, and when each rank worked.

Records are those of the event `elastic` of the experiment horovod_elastic. A **life** is the time between two changes
of the world: life 0 ends when a rank is lost.
"""

from collections import Counter

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
    return [one for one in require(records, "elastic") if one["what"] in whats]


def last_commit(records: list[dict]) -> int:
    """The step of the last commit before a rank was lost, or of the last of all; 0 when there was none."""
    return max((one["step"] for one in _of(records, "commit") if one["life"] == 0), default=0)


def _kept_until(records: list[dict]) -> dict[int, int]:
    """Life -> the last of its steps that counts, for each life that ended with a loss."""
    return {one["life"]: one["step"] for one in _of(records, "restored")}


def _counts(records: list[dict]) -> list[dict]:
    """The records of steps that count in the end."""
    until = _kept_until(records)
    return [one for one in _of(records, "step") if one["step"] <= until.get(one["life"], one["step"])]


def _each_once(steps: list[dict]) -> list[int]:
    return [step for _, step in sorted({(one["life"], one["step"]) for one in steps})]


def lost(records: list[dict]) -> list[int]:
    """The steps that were done and thrown away, in order: those after the last commit."""
    until = _kept_until(records)
    return _each_once([one for one in _of(records, "step") if one["step"] > until.get(one["life"], one["step"])])


def lasting(records: list[dict]) -> list[int]:
    """The steps that count in the end, in the order in which they were done; a step done twice would be there twice."""
    return _each_once(_counts(records))


def samples(records: list[dict]) -> dict[int, int]:
    """Sample (its index) -> how often the steps that count saw it, on all ranks together."""
    return dict(sorted(Counter(sample for one in _counts(records) for sample in one["samples"]).items()))


def explain(records: list[dict]) -> str:
    """One sentence on the samples: how many count once, and which were seen twice and why."""
    count, every = samples(records), Counter(sample for one in _of(records, "step") for sample in one["samples"])
    once, repeated = sum(times == 1 for times in count.values()), sum(times > 1 for times in count.values())
    said = [f"{once:,} samples count once"]
    if repeated:
        said.append(f"{repeated:,} count more than once, since the sampler repeats some to give all ranks as many")
    again = sum(every[sample] > times for sample, times in count.items())
    if again:
        steps = lost(records)
        where = f"step{'s' * (len(steps) > 1)} {', '.join(map(str, steps))}"
        said.append(f"{again:,} were seen once more in {where}, whose work was thrown away")
    missing = sum(sample not in count for sample in every)
    if missing:
        said.append(f"{missing:,} were seen only in work that was thrown away")
    return "; ".join(said)


def worlds(records: list[dict]) -> list[tuple[float, float, int]]:
    """(begin, end, world size) of each life: when its first step begins, and its last ends or is cut short."""
    found = []
    for life in sorted({one["life"] for one in _of(records, "step")}):
        own = [one for one in _of(records, "step", "killed") if one["life"] == life]
        begin, end = min(one["began"] for one in own), max(one["seconds"] for one in own)
        found.append((begin, end, own[0]["world_size"]))
    return found


def _spans(own: list[dict]) -> list[dict]:
    """A rank's steps, and those that it began and could not end since it or another was killed."""
    spans, free = [], 0.0
    for one in own:
        if one["what"] in ("step", "killed"):
            spans.append(one)
        elif one["what"] == "lost":
            spans.append(one | {"began": free, "step": one["step"] + 1})
        free = one["seconds"]
    return spans


def _steps(axes: Axes, row: int, spans: list[dict], kept: set[tuple[int, int]], inch: float) -> None:
    """A rank's boxes with the numbers of their steps; those that were thrown away are hatched.

    Args:
        kept: (life, step) of all that count.
        inch: time that is an inch long.
    """
    for one in spans:
        its, width = look(one["first_rank"]), one["seconds"] - one["began"]
        away = one["what"] != "step" or (one["life"], one["step"]) not in kept
        face = {"facecolor": PAPER, "edgecolor": its.colour, "hatch": "////"} if away else {"facecolor": its.colour}
        axes.add_patch(Rectangle((one["began"], row - LANE / 2), width, LANE, **{"edgecolor": PAPER} | face))
        if one["what"] != "killed" and width > inch * DIGIT * len(str(one["step"])):
            ink, paper = (INK, PAPER) if away else (its.text, None)
            lanes.number(axes, (one["began"] + width / 2, row), one["step"], ink, paper)


def _back(axes: Axes, row: int, own: list[dict], inch: float) -> None:
    """To which step a rank goes back, between its loss and the first step that it does again."""
    for here, there in zip(own, own[1:], strict=False):
        if here["what"] == "restored" and there["what"] == "resized":
            until = next((one["began"] for one in own if one["what"] == "step" and one["life"] == there["life"]), None)
            if until and until - here["seconds"] > inch * DIGIT * 6:
                words = {"ha": "center", "va": "center", "fontsize": 7.5, "color": INK}
                axes.text((here["seconds"] + until) / 2, row, f"back to\nstep {here['step']}", **words)


def _marks(axes: Axes, row: int, records: list[dict]) -> None:
    for one in records:
        if one["what"] == "commit":
            axes.plot(one["seconds"], row - LANE / 2 - 0.05, "v", color=INK, markersize=5, clip_on=False)
        elif one["what"] == "killed":
            axes.plot(one["seconds"], row, "X", color=RANKS[1], markersize=13, markeredgecolor=PAPER, zorder=5)
        elif one["what"] == "dropped":
            axes.plot(one["seconds"], row, "s", color=SOFT, markersize=8, markeredgecolor=PAPER, zorder=5)


def _above(axes: Axes, found: list[tuple[float, float, int]]) -> None:
    """The world size of each life, and how long nobody trained between two."""
    place = blended_transform_factory(axes.transData, axes.transAxes)
    for begin, end, size in found:
        axes.plot([begin, end], [1.03, 1.03], transform=place, color=INK, linewidth=1.5, clip_on=False)
        words = {"ha": "center", "va": "bottom", "fontsize": 9, "color": INK}
        axes.text((begin + end) / 2, 1.05, f"world size {size}", transform=place, **words)
    for (_, end, _), (begin, _, _) in zip(found, found[1:], strict=False):
        axes.axvspan(end, begin, facecolor=PALE, zorder=0)
        axes.text((begin + end) / 2, 1.05, f"{begin - end:.1f} s", transform=place, **words | {"color": SOFT})


def _whence(records: list[dict]) -> str:
    step = last_commit(records)
    return f"the commit of step {step}" if step else "the start, since nothing was committed"


def _words(records: list[dict], found: list[tuple[float, float, int]]) -> str:
    said = []
    for one in _of(records, "killed"):
        said.append(f"Rank {one['first_rank']} on {one['hvd_host']} is killed in step {one['step']}")
    for one in _of(records, "dropped"):
        said.append(f"rank {one['first_rank']} is given up with its host {one['hvd_host']}")
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
    found, ranks = worlds(records), sorted({(one["first_rank"], one["hvd_host"]) for one in records})
    alt = f"Elastic training over time, a row for each rank. {_words(records, found)}."
    figure, (axes,) = new(0.5 * len(ranks) + 1.6, alt)
    begin, end = found[0][0], found[-1][1]
    inch, kept = (end - begin) / ROOM, {(one["life"], one["step"]) for one in _counts(records)}
    for row, (rank, _) in enumerate(ranks):
        own = [one for one in records if one["first_rank"] == rank]
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
    dot = {"linestyle": "none", "markeredgecolor": PAPER}
    return [
        Patch(facecolor=SOFT, edgecolor=PAPER, label="step that counts"),
        Patch(facecolor=PAPER, edgecolor=SOFT, hatch="////", label="thrown away"),
        Line2D([], [], marker="v", color=INK, markersize=6, label="commit", **dot),
        Line2D([], [], marker="X", color=RANKS[1], markersize=11, label="killed", **dot),
        Line2D([], [], marker="s", color=SOFT, markersize=8, label="given up with its host", **dot),
    ]
