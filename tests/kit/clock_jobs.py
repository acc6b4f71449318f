"""What ranks do in test_clock.py."""

import time
from unittest.mock import patch

from distlab import process
from distlab.measure.clock import ahead_of_rank_0


def ahead(seconds: list[float]) -> float:
    """What a rank is told whose clock is so many seconds ahead."""
    with process.group() as me:
        true = time.perf_counter
        with patch.object(time, "perf_counter", lambda: true() + seconds[me.rank]):
            return ahead_of_rank_0(me)
