"""How often an agent looks at its ranks, which compute on the very cores that a look takes."""

# The share of time between two looks and its limits: each look interrupts a rank on its core.
SHARE, SHORTEST, LONGEST = 0.02, 0.05, 0.2


def pause(age: float) -> float:
    """Seconds until the next look at ranks that started `age` seconds ago.

    A short run does not wait for a look, and a long one does not pay for many.

    >>> [pause(age) for age in (0, 5, 600)]
    [0.05, 0.1, 0.2]
    """
    return min(max(SHARE * age, SHORTEST), LONGEST)
