"""Where to cut a pipeline, so that its slowest stage is as quick as can be."""

from collections.abc import Sequence
from itertools import accumulate


def split(costs: Sequence[float], stages: int) -> list[int]:
    """Cut layers that follow one another into stages, so that the slowest stage is as quick as can be.

    Args:
        costs: of each layer, 0 or more.

    Returns:
        Layers of each stage, each 1 or more. Where several cuts are as good, earlier stages have fewer layers.

    Raises:
        ValueError: there are more stages than layers, or none.

    >>> split([1, 1, 1, 1, 1, 1, 1, 1], 4), split([4, 1, 1, 1, 1], 2)
    ([2, 2, 2, 2], [1, 4])
    """
    if not 1 <= stages <= len(costs):
        raise ValueError(f"{len(costs)} layers cannot be cut into {stages} stages: use 1 to {len(costs)} stages")
    # Work from the last stage: best[i] is (the slowest stage's cost, layers of each stage) for the layers from i on.
    sums = [0, *accumulate(costs)]
    total = len(costs)
    best = {first: (sums[total] - sums[first], [total - first]) for first in range(total)}
    for more in range(1, stages):
        best = {
            first: min(
                (max(sums[cut] - sums[first], best[cut][0]), [cut - first, *best[cut][1]])
                for cut in range(first + 1, total - more + 1)
            )
            for first in range(total - more)
        }
    return best[0][1]
