"""Measured times of messages and the line of latency and bandwidth through them.

Draws what `messages/sizes` reported, with the fit of `measure.alpha_beta`.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np

from distlab.drawing.colours import INK, RANKS, SOFT
from distlab.drawing.figure import Picture, doubling, guide_lines, new, require, say
from distlab.drawing.units import words_of_size, words_of_time
from distlab.measure.alpha_beta import AlphaBeta


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
    fitted = [1e3 * line.seconds(size) for size in curve]
    axes.plot(curve, fitted, color=INK, linewidth=1.6, label="alpha + size / beta")
    axes.plot(sizes, [1e3 * time for time in seconds], "o", color=RANKS[0], mec=INK, ms=7, label="measured")
    if held_out:
        point = held_out[0], 1e3 * held_out[1]
        axes.plot(*point, "D", mfc="none", mec=RANKS[1], mew=2, ms=9, label="measured, not used in the fit")
    if least < half < most:
        axes.axvline(half, color=RANKS[1], linewidth=1)
        words = f" half the bandwidth\n at {words_of_size(half)}"
        place: dict[str, Any] = {"xycoords": ("data", "axes fraction"), "va": "bottom"}
        axes.annotate(words, (half, 0.02), fontsize=8.5, color=RANKS[1], **place)
    axes.set_yscale("log")
    axes.set_xlim(least, most)
    axes.set_ylim(0.5e3 * min([*seconds, line.seconds(min(sizes))]), None)
    axes.yaxis.set_major_formatter("{x:g}")
    doubling(axes, sorted(set(sizes)), [words_of_size(size) for size in sorted(set(sizes))])
    say(axes, f"{what}: {line} on average", "size of the tensor on each rank", "milliseconds")
    axes.legend(loc="upper left", frameon=False, fontsize=8.5)
    return figure
