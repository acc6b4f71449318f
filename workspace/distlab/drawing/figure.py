"""A matplotlib figure that shows itself in a notebook, with an alternative text."""

import textwrap
from collections.abc import Sequence
from io import BytesIO
from typing import Any, Literal, TypeVar

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from distlab.drawing.colours import INK, PALE, PAPER, SOFT
from distlab.errors import DistlabError

DPI = 96
# Inches; as wide as a notebook's text.
WIDTH = 7.6

Record = TypeVar("Record")


class NothingToDraw(DistlabError, ValueError):
    """A picture got no records."""


class Picture(Figure):
    """A static figure. `alt` says in words what it shows."""

    alt: str = ""

    def _repr_mimebundle_(self, include: object = None, exclude: object = None) -> tuple[dict, dict]:
        file = BytesIO()
        self.savefig(file, format="png", dpi=DPI, facecolor=PAPER)
        return {"image/png": file.getvalue(), "text/plain": repr(self)}, {"image/png": {"alt": self.alt}}

    def legend_below(self, columns: int, **more: object) -> None:
        """A legend under all axes.

        Args:
            more: what `Figure.legend` takes, such as handles.
        """
        self.legend(loc="outside lower center", ncols=columns, frameon=False, **{"fontsize": 9} | more)

    def __repr__(self) -> str:
        return textwrap.fill(f"picture: {self.alt}", 100)


def new(height: float, alt: str, rows: int = 1, columns: int = 1, **grid: Any) -> tuple[Picture, list[Axes]]:
    """A picture of the course's width with its axes, row by row.

    Args:
        height: in inches.
        grid: what `Figure.subplots` takes besides.
    """
    picture = Picture(figsize=(WIDTH, height), layout="constrained")
    picture.alt = alt
    axes = list(picture.subplots(rows, columns, squeeze=False, **grid).flat)
    for panel in axes:
        panel.spines[["top", "right"]].set_visible(False)
        panel.spines[["left", "bottom"]].set_color(SOFT)
        panel.tick_params(colors=INK, labelsize=9)
        panel.title.set_color(INK)
        panel.set_axisbelow(True)
    return picture, axes


def say(axes: Axes, title: str, x: str | None, y: str | None) -> None:
    """Title and axis labels; None leaves an axis without one."""
    axes.set_title(title, fontsize=10.5, loc="left")
    if x:
        axes.set_xlabel(x, fontsize=9.5, color=INK)
    if y:
        axes.set_ylabel(y, fontsize=9.5, color=INK)


def guide_lines(axes: Axes, axis: Literal["x", "y", "both"] = "y") -> None:
    """Faint lines to read values by."""
    axes.grid(axis=axis, color=PALE, linewidth=0.8)


def bare(axes: Axes) -> None:
    """No frame and no marks on it: what is drawn is no curve."""
    axes.tick_params(length=0)
    for side in axes.spines.values():
        side.set_visible(False)


def doubling(axes: Axes, values: Sequence[float], names: Sequence[object]) -> None:
    """A horizontal axis of powers of two with a name at each of some values."""
    axes.set_xscale("log", base=2)
    axes.set_xticks(values, [str(name) for name in names])
    axes.minorticks_off()


def require(records: list[Record], event: str) -> list[Record]:
    """The records as a list.

    Raises:
        NothingToDraw: there are none; says which event was expected.
    """
    if not records:
        raise NothingToDraw(f"no {event!r} records to draw: did the run end well? pass result.records({event!r})")
    return list(records)
