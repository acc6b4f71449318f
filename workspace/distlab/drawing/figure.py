"""A matplotlib figure that shows itself in a notebook, with a text for who cannot see it."""

import textwrap
from io import BytesIO

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from distlab.drawing.colours import INK, PALE, PAPER, SOFT

DPI = 96
# As wide as a notebook's text: nothing to scroll sideways.
WIDTH = 7.6


class Picture(Figure):
    """A static figure. `alt` says in words what it shows."""

    alt: str = ""

    def _repr_mimebundle_(self, include: object = None, exclude: object = None) -> tuple[dict, dict]:
        file = BytesIO()
        self.savefig(file, format="png", dpi=DPI, facecolor=PAPER)
        return {"image/png": file.getvalue(), "text/plain": repr(self)}, {"image/png": {"alt": self.alt}}

    def __repr__(self) -> str:
        return textwrap.fill(f"picture: {self.alt}", 100)


def new(height: float, alt: str, rows: int = 1, columns: int = 1, **grid: object) -> tuple[Picture, list[Axes]]:
    """A picture of the course's width with its axes, row by row.

    Args:
        height: in inches.
        grid: what `Figure.subplots` takes besides.
    """
    picture = Picture(figsize=(WIDTH, height), layout="constrained")
    picture.alt = alt
    axes = list(picture.subplots(rows, columns, squeeze=False, **grid).flat)
    for one in axes:
        for side in ("top", "right"):
            one.spines[side].set_visible(False)
        for side in ("left", "bottom"):
            one.spines[side].set_color(SOFT)
        one.tick_params(colors=INK, labelsize=9)
        one.title.set_color(INK)
        one.set_axisbelow(True)
    return picture, axes


def say(axes: Axes, title: str, x: str | None, y: str | None) -> None:
    """Title and axis labels; None leaves an axis without one."""
    axes.set_title(title, fontsize=10.5, loc="left")
    if x:
        axes.set_xlabel(x, fontsize=9.5, color=INK)
    if y:
        axes.set_ylabel(y, fontsize=9.5, color=INK)


def guide_lines(axes: Axes, axis: str = "y") -> None:
    """Faint lines to read values by."""
    axes.grid(axis=axis, color=PALE, linewidth=0.8)


def require(records: list[dict], event: str) -> list[dict]:
    """The records, or a sentence for who passes none.

    Raises:
        ValueError: there is nothing to draw.
    """
    if not records:
        raise ValueError(f"no {event!r} records to draw: did the run end well? pass result.records({event!r})")
    return list(records)
