"""Lanes of time, one below the other, and the numbers in their boxes: what pictures of a step have in common."""

from collections.abc import Sequence

from matplotlib.axes import Axes

from distlab.drawing.colours import INK


def lay(axes: Axes, names: Sequence[str]) -> None:
    """A lane for each name, the first on top; lane n is around y = n."""
    axes.set_yticks(range(len(names)), names)
    axes.set_ylim(len(names) - 0.5, -0.5)


def number(axes: Axes, middle: tuple[float, float], value: int, ink: str = INK, paper: str | None = None) -> None:
    """A number in the middle of a box; `paper` is a background colour for boxes with a hatch."""
    box = {"facecolor": paper, "edgecolor": "none", "pad": 0.4} if paper else None
    axes.text(*middle, str(value), ha="center", va="center", fontsize=7.5, color=ink, bbox=box)
