"""What a picture shows, read from its axes."""

from collections.abc import Iterable

from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.collections import PolyCollection
from matplotlib.colors import to_hex
from matplotlib.patches import Patch, Rectangle


def texts(artists: Iterable) -> list[str]:
    """The text of each, such as the labels of an axis."""
    return [artist.get_text() for artist in artists]


def words(axes: Axes) -> list[str]:
    """What is written in the axes."""
    return [text for text in texts(axes.texts) if text]


def boxes(axes: Axes, kind: type[Patch] = Rectangle) -> list[Patch]:
    """The patches of a kind, in the order in which they were drawn."""
    return [patch for patch in axes.patches if isinstance(patch, kind)]


def colours(artists: Iterable[Artist]) -> list[str]:
    """The face of each, as #rrggbb."""
    return [to_hex(artist.get_facecolor()) for artist in artists]


def stretches(axes: Axes) -> list[list[tuple[float, float]]]:
    """(start, end) of each bar, a list for each call of `broken_barh`."""
    calls = [collection for collection in axes.collections if isinstance(collection, PolyCollection)]
    sides = [[path.vertices[:, 0] for path in call.get_paths()] for call in calls]
    return [[(side.min(), side.max()) for side in own] for own in sides]
