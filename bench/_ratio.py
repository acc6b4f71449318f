"""Ratios of one run on one machine, the only figures worth comparing across machines."""

import statistics
from collections.abc import Sequence


def say_ratio(what: str, mine: Sequence[float], other: Sequence[float], *, most: float = 0, least: float = 0) -> bool:
    """Print the ratio of two cases that took turns, beside its bound if it has one.

    It is the median of the turns' own ratios: a machine that slows down for a while slows both
    parts of a turn. Returns whether the bound holds.
    """
    ratio = statistics.median(one / another for one, another in zip(mine, other, strict=True))
    if not most and not least:
        print(f"{what}: {ratio:.3f}", flush=True)
        return True
    bound = f"at most {most}" if most else f"at least {least}"
    holds = ratio <= most if most else ratio >= least
    print(f"{what}: {ratio:.3f} ({bound}: {'holds' if holds else 'MISSED'})", flush=True)
    return holds


def say_times(what: str, values: Sequence[float], unit: str) -> None:
    """Print a median with its range."""
    low, middle, high = min(values), statistics.median(values), max(values)
    print(f"{what}: {middle:.2f} {unit} (from {low:.2f} to {high:.2f}, {len(values)} runs)", flush=True)
