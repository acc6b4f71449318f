"""Time of a message = alpha + size / beta: a latency and a bandwidth from measured times.

The model is Hockney's: The communication challenge for MPP, Parallel Computing 20 (1994).
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from distlab.insight.colours import INK, RANKS, SOFT
from distlab.insight.figure import Picture, guide_lines, new, require, say

LEAST_SIZES = 3


@dataclass(frozen=True)
class AlphaBeta:
    """A fitted line.

    Attributes:
        alpha: seconds that a message takes however small it is (latency).
        beta: bytes per second of a message that is long enough (bandwidth).
        error: root mean square of the relative error over the points: 0.1 is ten per cent.
    """

    alpha: float
    beta: float
    error: float

    def seconds(self, size: float) -> float:
        """Predicted time of `size` bytes."""
        return self.alpha + size / self.beta

    @property
    def half_size(self) -> float:
        """Bytes at which a message reaches half of the bandwidth: as long for the latency as for the bytes."""
        return self.alpha * self.beta

    def __str__(self) -> str:
        return f"{words_of_time(self.alpha)} + size / {self.beta / 1e9:.3g} GB/s, within {self.error:.0%}"


def fit(sizes: Sequence[float], seconds: Sequence[float]) -> AlphaBeta:
    """Fit latency and bandwidth to measured times, so that the sum of squared relative errors is least.

    Relative errors, since a plain least squares fit would look at the longest message only: a
    millisecond is nothing there and all there is at the other end.

    Args:
        sizes: in bytes, at least three different ones.
        seconds: one per size, above 0.

    Returns:
        Never a negative latency: where the best line has one, the best line through the origin.

    Raises:
        ValueError: there are too few points, one is no number or not above 0, or time does not grow with size.
    """
    x, t = np.asarray(sizes, dtype=float), np.asarray(seconds, dtype=float)
    if x.ndim != 1 or x.shape != t.shape:
        raise ValueError(f"{x.size} sizes and {t.size} times: give one time for each size")
    if len(set(x.tolist())) < LEAST_SIZES:
        raise ValueError(f"{len(set(x.tolist()))} different sizes cannot carry a fit: measure {LEAST_SIZES} or more")
    for what, values, bad in (("size", x, x < 0), ("time", t, t <= 0)):
        wrong = values[bad | ~np.isfinite(values)]
        if wrong.size:
            raise ValueError(f"{wrong[0]:g} is no {what} that a message can have")
    alpha, slope = np.linalg.lstsq(np.column_stack([1 / t, x / t]), np.ones_like(t), rcond=None)[0]
    if alpha < 0:
        # Over slopes alone, the sum of (slope x / t - 1) squared is least here.
        alpha, slope = 0.0, float((x / t).sum() / ((x / t) ** 2).sum())
    # So small a slope is rounding: over all sizes it changes no time by a thousandth of a per cent.
    if slope * (x.max() - x.min()) < 1e-5 * t.min():
        raise ValueError("time does not grow with size, so there is no bandwidth to find: measure longer messages")
    error = float(np.sqrt(np.mean(((alpha + slope * x) / t - 1) ** 2)))
    return AlphaBeta(float(alpha), float(1 / slope), error)


def words_of_size(size: float) -> str:
    """Bytes as people say them, with 1 KB = 1024 B.

    >>> [words_of_size(size) for size in (512, 1024, 65536, 3 << 20)]
    ['512 B', '1 KB', '64 KB', '3 MB']
    """
    for unit, least in (("GB", 1 << 30), ("MB", 1 << 20), ("KB", 1 << 10)):
        if size >= least:
            return f"{size / least:.3g} {unit}"
    return f"{size:.3g} B"


def words_of_time(seconds: float) -> str:
    """Seconds as people say them.

    >>> [words_of_time(seconds) for seconds in (2e-6, 0.00345, 1.5)]
    ['2 µs', '3.45 ms', '1.5 s']
    """
    for unit, least in (("s", 1.0), ("ms", 1e-3)):
        if seconds >= least:
            return f"{seconds / least:.3g} {unit}"
    return f"{seconds / 1e-6:.3g} µs"


def picture(
    sizes: Sequence[float],
    seconds: Sequence[float],
    line: AlphaBeta,
    what: str = "message",
    held_out: tuple[float, float] | None = None,
) -> Picture:
    """Measured times and the fitted line, both axes logarithmic, with the size at which half the bandwidth is reached.

    Args:
        sizes: in bytes.
        seconds: one per size.
        line: as `fit` returns it.
        what: what was timed, for the title.
        held_out: (bytes, seconds) of a measurement that the fit has not seen.
    """
    require(list(sizes), "time")
    half = line.half_size
    alt = (
        f"Time of one {what} by size, both axes logarithmic: measured at {len(sizes)} sizes from "
        f"{words_of_size(min(sizes))} to {words_of_size(max(sizes))}, and the line {line}. "
        f"Half of the bandwidth is reached at {words_of_size(half)}."
    )
    figure, (axes,) = new(3.5, alt)
    guide_lines(axes, "both")
    least, most = min(sizes) / 2, max(sizes) * 2
    curve = np.geomspace(least, most, 200)
    latency, bandwidth = f"alpha: {words_of_time(line.alpha)}", f"size / beta, {line.beta / 1e9:.3g} GB/s"
    axes.axhline(1e3 * line.alpha, color=SOFT, linestyle=":", linewidth=1.2, label=latency)
    axes.plot(curve, 1e3 * curve / line.beta, "--", color=SOFT, linewidth=1.2, label=bandwidth)
    axes.plot(curve, 1e3 * line.seconds(curve), color=INK, linewidth=1.6, label="alpha + size / beta")
    axes.plot(sizes, [1e3 * one for one in seconds], "o", color=RANKS[0], mec=INK, ms=7, label="measured")
    if held_out:
        point = held_out[0], 1e3 * held_out[1]
        axes.plot(*point, "D", mfc="none", mec=RANKS[1], mew=2, ms=9, label="measured, not used in the fit")
    if least < half < most:
        axes.axvline(half, color=RANKS[1], linewidth=1)
        words = f" half the bandwidth\n at {words_of_size(half)}"
        place = {"xycoords": ("data", "axes fraction"), "va": "bottom"}
        axes.annotate(words, (half, 0.02), fontsize=8.5, color=RANKS[1], **place)
    axes.set_xscale("log", base=2)
    axes.set_yscale("log")
    axes.set_xlim(least, most)
    axes.set_ylim(0.5e3 * min([*seconds, line.seconds(min(sizes))]), None)
    axes.set_xticks(sorted(set(sizes)), [words_of_size(size) for size in sorted(set(sizes))])
    axes.yaxis.set_major_formatter("{x:g}")
    axes.minorticks_off()
    say(axes, f"{what}: {line} on average", "size of the tensor on each rank", "milliseconds")
    axes.legend(loc="upper left", frameon=False, fontsize=8.5)
    return figure
