"""One time for all ranks."""

import clock_jobs
import pytest
import start_ranks


def test_each_rank_is_told_how_far_its_clock_is_ahead(tmp_path):
    told = start_ranks.run(3, clock_jobs.ahead, [0.0, 5.0, -2.0], folder=tmp_path)
    assert told[0] == 0.0
    assert told[1:] == pytest.approx([5.0, -2.0], abs=0.05)
