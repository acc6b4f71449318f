"""The colour, marker and hatch of each rank: the same in every picture of the course.

Four colours whose lightness differs as much as their hue, so that they stay apart for colour-blind
readers and on a grey printer. Ranks 4 and up wear them again, hatched.
"""

from dataclasses import dataclass

RANKS = ("#1f3b73", "#c44a2b", "#41ab9a", "#f6d365")
TEXT_ON_RANKS = ("#ffffff", "#ffffff", "#10151f", "#10151f")
MARKERS = ("o", "s", "^", "D", "v", "P", "X", "*")
HATCHES = ("", "////", "....", "xxxx")

INK = "#222831"
SOFT = "#6b7280"
PALE = "#e5e7eb"
PAPER = "#ffffff"


@dataclass(frozen=True)
class Look:
    """How a rank is drawn; `text` is readable on `colour`."""

    colour: str
    text: str
    marker: str
    hatch: str


def look(rank: int) -> Look:
    """The look of a rank."""
    turn = rank % len(RANKS)
    hatch = HATCHES[rank // len(RANKS) % len(HATCHES)]
    return Look(RANKS[turn], TEXT_ON_RANKS[turn], MARKERS[rank % len(MARKERS)], hatch)
