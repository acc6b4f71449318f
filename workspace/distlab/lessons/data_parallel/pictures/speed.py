"""Images per second of one batch on one device, on replicas in one process, and on ranks."""

from matplotlib.patches import Patch

from distlab.drawing import lanes
from distlab.drawing.colours import INK, PAPER, RANKS, SOFT
from distlab.drawing.figure import Picture, guide_lines, new, require, say

WORK = ("training", "inference")
LOOK = {
    "device": ("one device", SOFT, ""),
    "replicas": ("replicas in threads (DataParallel)", RANKS[0], ""),
    "ranks": ("ranks, each a process (DDP)", PAPER, "////"),
}


def table(records: list[dict]) -> list[dict]:
    """A row per network and case: kind, devices, threads, and images/s of the best round of each kind of work.

    Ranks are added up. `training_times` and `inference_times` count from the first case of the network.

    Args:
        records: of the event `speed`, each with rank, net, kind, devices, threads, device and
            images_per_second (by kind of work, one number per round).
    """
    cases: dict[tuple, list[dict]] = {}
    for record in require(records, "speed"):
        case = record["net"], record["kind"], record["devices"], record["threads"], record["device"]
        cases.setdefault(case, []).append(record)
    rows: list[dict] = []
    for (net, kind, devices, threads, device), ranks in cases.items():
        row = {"net": net, "kind": kind, "devices": devices, "threads": threads, "device": device}
        for work in WORK:
            row[work] = max(map(sum, zip(*(record["images_per_second"][work] for record in ranks), strict=True)))
            first = next((row for row in rows if row["net"] == net), row)
            row[f"{work}_times"] = row[work] / first[work]
        rows.append(row)
    return rows


def find(rows: list[dict], net: str, kind: str) -> dict:
    """The last row of a network and kind: the one with most devices or cores."""
    return [row for row in rows if (row["net"], row["kind"]) == (net, kind)][-1]


def _name(row: dict) -> str:
    cores = f", {row['threads']} core{'s' * (row['threads'] != 1)}" if row["device"] == "cpu" else ""
    word = {"device": "device", "replicas": "replicas", "ranks": "ranks"}[row["kind"]]
    return f"{row['devices']} {word}{cores}"


def picture(records: list[dict]) -> Picture:
    """A panel for each network and kind of work, a bar per case, as multiples of the first one."""
    rows = table(records)
    nets = list(dict.fromkeys(row["net"] for row in rows))
    most = max(sum(row["net"] == net for row in rows) for net in nets)
    said = "; ".join(
        f"{row['net']}, {_name(row)}: training {row['training_times']:.2f}, inference {row['inference_times']:.2f}"
        for row in rows
    )
    alt = f"Images per second as multiples of one device with one core. {said}."
    figure, panels = new(0.27 * most * len(nets) + 1.5, alt, rows=len(nets), columns=len(WORK), sharey="row")
    for number, axes in enumerate(panels):
        net, work = nets[number // len(WORK)], WORK[number % len(WORK)]
        own = [row for row in rows if row["net"] == net]
        guide_lines(axes, "x")
        for place, row in enumerate(own):
            _, colour, hatch = LOOK[row["kind"]]
            times = row[f"{work}_times"]
            axes.barh(place, times, 0.68, color=colour, edgecolor=INK, hatch=hatch, linewidth=0.7)
            room = {"facecolor": PAPER, "edgecolor": "none", "pad": 0.6}
            shift = 0.02 * max(row[f"{work}_times"] for row in own)
            axes.text(times + shift, place, f"{times:.2f} x", va="center", fontsize=8.5, color=INK, bbox=room)
        axes.axvline(1, color=INK, linestyle=":", linewidth=1.2)
        lanes.lay(axes, [_name(row) for row in own])
        axes.set_xlim(0, 1.22 * max(row[f"{work}_times"] for row in own))
        bottom = number // len(WORK) == len(nets) - 1
        say(axes, f"{net}: {work}", "images per second, first bar = 1" if bottom else None, None)
    kinds = [kind for kind in LOOK if any(row["kind"] == kind for row in rows)]
    handles = [Patch(facecolor=LOOK[k][1], edgecolor=INK, hatch=LOOK[k][2], label=LOOK[k][0]) for k in kinds]
    figure.legend_below(3, handles=handles)
    return figure
