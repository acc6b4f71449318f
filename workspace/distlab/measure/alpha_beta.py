"""Time of a message = alpha + size / beta: a latency and a bandwidth from measured times.

The model is Hockney's: The communication challenge for MPP, Parallel Computing 20 (1994).
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from distlab.drawing.units import words_of_time

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

    Relative errors, since those of the longest messages would otherwise outweigh all others.

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
        # Without a latency, this slope minimises the sum of (slope x / t - 1) squared.
        alpha, slope = 0.0, float((x / t).sum() / ((x / t) ** 2).sum())
    # A smaller slope is a rounding error: it changes the times by less than a thousandth of a per cent.
    if slope * (x.max() - x.min()) < 1e-5 * t.min():
        raise ValueError("time does not grow with size, so there is no bandwidth to find: measure longer messages")
    error = float(np.sqrt(np.mean(((alpha + slope * x) / t - 1) ** 2)))
    return AlphaBeta(float(alpha), float(1 / slope), error)
