"""When each rank of a pipeline works, on which microbatch, and when it waits: one step, lane by lane."""

from matplotlib.axes import Axes
from matplotlib.patches import Patch, Rectangle

from distlab.drawing import lanes
from distlab.drawing.colours import PALE, PAPER, SOFT, look
from distlab.drawing.figure import WIDTH, Picture, new, require, say
from distlab.lessons.pipeline.orders import BACKWARD, FORWARD, INPUT, WEIGHTS
from distlab.lessons.pipeline.schedules import bubble
from distlab.measure.trace import merged

LANE = 0.84
# A rank's later stage is drawn lower by this part of its lane.
STEP = 0.24
# In inches, roughly: the length of a lane, and the width of a digit.
ROOM, DIGIT = WIDTH - 0.8, 0.07


def _face(kind: str, colour: str, line: str) -> dict:
    hatch = {"hatch": "////", "hatchcolor": line} if kind == WEIGHTS else {}
    return {"facecolor": (colour, 0.4) if kind == FORWARD else colour, "edgecolor": PAPER, "linewidth": 0.6, **hatch}


def _work(axes: Axes, row: int, record: dict, inch: float) -> None:
    """A rank's boxes.

    Args:
        inch: time that is an inch long.
    """
    its, stages = look(record["rank"]), sorted({span["stage"] for span in record["spans"]})
    height = LANE - STEP * (len(stages) - 1)
    for span in record["spans"]:
        kind, start, width = span["kind"], span["start"], span["end"] - span["start"]
        top = row - LANE / 2 + STEP * stages.index(span["stage"])
        axes.add_patch(Rectangle((start, top), width, height, **_face(kind, its.colour, its.text)))
        if width > inch * DIGIT * (0.3 + len(str(span["microbatch"]))):
            ink = {} if kind == FORWARD else {"ink": its.text}
            paper = {"paper": its.colour} if kind == WEIGHTS else {}
            lanes.number(axes, (start + width / 2, top + height / 2), span["microbatch"], **ink, **paper)


def _idle(axes: Axes, row: int, record: dict, start: float, end: float) -> None:
    busy = merged((span["start"], span["end"]) for span in record["spans"])
    edges = [start, *(at for pair in busy for at in pair), end]
    gaps = [(a, b - a) for a, b in zip(edges[::2], edges[1::2], strict=True) if b > a]
    axes.broken_barh(gaps, (row - LANE / 2, LANE), facecolor=PAPER, edgecolor=PALE, hatch="....", linewidth=0)


def _unit(records: list[dict]) -> str:
    return records[0].get("unit", "milliseconds")


def _name(record: dict) -> str:
    pieces = record["microbatches"]
    return f"{record['schedule']}, {pieces} microbatch" + "es" * (pieces != 1)


def _last(records: list[dict]) -> float:
    return max(span["end"] for record in records for span in record["spans"])


def _panel(axes: Axes, title: str, records: list[dict], lane: str, until: float) -> None:
    records = sorted(records, key=lambda record: record["rank"])
    begin = min(span["start"] for record in records for span in record["spans"])
    for row, record in enumerate(records):
        _idle(axes, row, record, begin, _last(records))
        _work(axes, row, record, until / ROOM)
    lanes.lay(axes, [f"{lane} {record['rank']}" for record in records])
    axes.set_xlim(0, until)
    say(axes, f"{title}: bubble {bubble(records):.0%}", None, None)


def _handles(records: list[dict]) -> list[Patch]:
    found = {span["kind"] for record in records for span in record["spans"]}
    # A whole backward and the backward of inputs have one look: the other ranks wait for either.
    looks = {FORWARD: [FORWARD], BACKWARD: [BACKWARD, INPUT], WEIGHTS: [WEIGHTS]}
    names = {kind: ", ".join(each for each in alike if each in found) for kind, alike in looks.items()}
    idle = Patch(facecolor=PAPER, edgecolor=PALE, hatch="....", linewidth=0, label="idle")
    return [*(Patch(**_face(kind, SOFT, PAPER), label=name) for kind, name in names.items() if name), idle]


def picture(records: list[dict] | dict[str, list[dict]], lane: str = "rank") -> Picture:
    """A lane for each rank, a box for each piece of work with its microbatch's number; several panels from a dict.

    Args:
        records: of the event `work` of one step, measured or simulated; or panel's title -> records,
            from top to bottom. Panels of the same unit have time axes of the same length.
        lane: what a lane is: "rank", or "device" where one process has several.

    Raises:
        ValueError: there are no records, or those of a panel are not of one step.
    """
    panels = records if isinstance(records, dict) else {_name(require(records, "work")[0]): records}
    everything = require([record for step in panels.values() for record in require(step, "work")], "work")
    units = [_unit(step) for step in panels.values()]
    ends = [max(_last(step) for step in panels.values() if _unit(step) == unit) for unit in units]
    said = "; ".join(f"{title}: {_name(step[0])}, bubble {bubble(step):.0%}" for title, step in panels.items())
    alt = f"One step of a pipeline, a lane for each {lane}: when it works on which microbatch, when it waits. {said}."
    figure, axes = new(0.4 * len(everything) + 0.5 * len(panels) + 0.7, alt, rows=len(panels))
    for place, (title, step) in enumerate(panels.items()):
        _panel(axes[place], title, step, lane, ends[place])
        if units[place] != (units[place + 1] if place + 1 < len(units) else None):
            axes[place].set_xlabel(f"{units[place]} since the step began", fontsize=9.5)
    handles = _handles(everything)
    later = any(len({span["stage"] for span in record["spans"]}) > 1 for record in everything)
    title = "where a rank has two stages, the later one is drawn lower" if later else None
    figure.legend_below(len(handles), handles=handles, title=title, title_fontsize=9)
    return figure
