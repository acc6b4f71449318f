"""Where the numbers of an image lie in memory, and which layers pass images on in which order."""

from matplotlib.patches import Rectangle

from distlab.drawing import lanes
from distlab.drawing.colours import INK, PALE, RANKS, SOFT, TEXT_ON_RANKS
from distlab.drawing.figure import Picture, new, require, say

CHANNELS = "RGB"
# Which pixel's numbers are marked, as [row, column].
PIXEL = [0, 1]
LOOKS = {"NHWC": (RANKS[0], TEXT_ON_RANKS[0]), "NCHW": (RANKS[1], TEXT_ON_RANKS[1])}


def addresses(record: dict, pixel: list[int]) -> list[int]:
    """The addresses at which the channels of a pixel [row, column] lie."""
    return [address for address, (_, *where) in enumerate(record["places"]) if where == pixel]


def picture(records: list[dict]) -> Picture:
    """A strip of addresses per format, coloured by channel; a frame around the numbers of one pixel.

    Args:
        records: of the event `places` and one rank, each with name, strides and places.
    """
    records = require(records, "places")
    said = "; ".join(f"{record['name']}: one pixel at addresses {addresses(record, PIXEL)}" for record in records)
    figure, (axes,) = new(0.9 * len(records) + 0.9, f"Memory of an image of three channels. {said}.")
    length = len(records[0]["places"])
    rows = [1.25 * number for number in range(len(records))]
    for row, record in zip(rows, records, strict=True):
        for address, (channel, *where) in enumerate(record["places"]):
            marked = where == PIXEL
            face, ink = RANKS[channel], TEXT_ON_RANKS[channel]
            box = Rectangle((address, row - 0.3), 0.94, 0.6, facecolor=face, alpha=1 if marked else 0.45)
            axes.add_patch(box)
            if marked:
                axes.add_patch(Rectangle((address, row - 0.36), 0.94, 0.72, fill=False, edgecolor=INK, linewidth=2.2))
            axes.text(
                address + 0.47,
                row,
                CHANNELS[channel],
                ha="center",
                va="center",
                fontsize=9,
                color=ink if marked else INK,
                weight="bold" if marked else "normal",
            )
        axes.text(0, row - 0.46, f"strides {tuple(record['strides'])}", fontsize=8.5, color=SOFT)
    axes.set_xlim(-0.2, length + 0.2)
    axes.set_ylim(rows[-1] + 0.45, -0.75)
    axes.set_yticks(rows, [record["name"] for record in records])
    axes.set_xticks([place + 0.47 for place in range(0, length, 4)], [str(place) for place in range(0, length, 4)])
    say(axes, "channels_last (NHWC) puts what belongs to one pixel side by side", "address (in numbers)", None)
    return figure


def layers(records: list[dict]) -> Picture:
    """A row per layer: the order of the images that it is given and that it gives.

    Args:
        records: of the event `layer` and one rank, each with layer, given and gives.
    """
    records = require(records, "layer")
    said = "; ".join(f"{record['layer']}: {record['given']} to {record['gives']}" for record in records)
    figure, (axes,) = new(0.3 * len(records) + 0.7, f"Memory format, layer by layer. {said}.")
    for row, record in enumerate(records):
        for column, key in enumerate(("given", "gives")):
            face, ink = LOOKS.get(record[key], (PALE, INK))
            axes.add_patch(Rectangle((column + 0.03, row - 0.42), 0.94, 0.84, facecolor=face))
            axes.text(column + 0.5, row, record[key], ha="center", va="center", fontsize=9, color=ink)
        if record["given"] != record["gives"]:
            axes.text(2.06, row, "changes it", va="center", fontsize=9, color=INK)
    axes.set_xlim(0, 2.6)
    lanes.lay(axes, [record["layer"] for record in records])
    axes.set_xticks([0.5, 1.5], ["is given", "gives"])
    say(axes, "One reshape loses channels_last; the next convolution copies it back", None, None)
    return figure
