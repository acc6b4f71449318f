"""Waiting until something holds."""

import time
from collections.abc import Callable
from typing import TypeVar

Answer = TypeVar("Answer")


def wait_until(condition: Callable[[], Answer], seconds: float, every: float = 0.05) -> Answer:
    """Ask until the answer is true or the time is up.

    Args:
        condition: asked at once, then after each pause, and a last time when the time is up.
        seconds: how long to wait at most; `math.inf` for as long as it takes.
        every: seconds between two questions.

    Returns:
        The last answer: one that is not true means that the time was up.

    Raises:
        Whatever the condition raises, which is also how it gives up before the time is up.
    """
    until = time.monotonic() + seconds
    while True:
        left = until - time.monotonic()
        if (answer := condition()) or left <= 0:
            return answer
        time.sleep(min(every, left))
