"""The one way in which tests of engines wait."""

import time
from collections.abc import Callable
from typing import TypeVar

Found = TypeVar("Found")


def wait_until(holds: Callable[[], Found], seconds: float, say: Callable[[], object] = lambda: "") -> Found:
    """Ask again and again until the answer is true, and return it.

    Args:
        say: what the error shows, such as the end of a log; asked once, when the time is up.

    Raises:
        AssertionError: it did not come true within `seconds`.
    """
    until = time.monotonic() + seconds
    while not (found := holds()):
        assert time.monotonic() < until, f"not within {seconds:g} s: {say()}"
        time.sleep(0.2)
    return found
