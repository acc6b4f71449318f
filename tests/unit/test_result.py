"""What a run hands back, asked for by event and by value."""

from pathlib import Path

import pytest
from distlab.launch import RunResult

METRICS = [
    {"rank": 0, "host": "node1", "event": "epoch", "epoch": 1, "loss": 0.5},
    {"rank": 0, "host": "node1", "event": "epoch", "epoch": 2, "loss": 0.4},
    {"rank": 0, "host": "node1", "event": "end"},
    {"rank": 1, "host": "node2", "event": "epoch", "epoch": 1, "loss": None},
    {"rank": 1, "host": "node2", "event": "end", "epoch": 1},
]


@pytest.fixture
def result():
    return RunResult("ddp", "torchrun", True, ["node1", "node2"], [], 1.0, Path("runs"), {}, metrics=METRICS)


@pytest.mark.parametrize(
    ("event", "where", "expected"),
    [
        ("epoch", {}, [0, 1, 3]),
        ("epoch", {"rank": 0}, [0, 1]),
        ("epoch", {"epoch": 1, "host": "node2"}, [3]),
        # A record that lacks the key does not match, not even None.
        ("end", {"epoch": 1}, [4]),
        ("end", {"loss": None}, []),
        ("epoch", {"loss": None}, [3]),
        ("epoch", {"rank": 2}, []),
        ("nothing", {"rank": 0}, []),
    ],
)
def test_records_of_an_event_with_these_values(result, event, where, expected):
    assert result.records(event, **where) == [METRICS[index] for index in expected]


def test_the_last_record_of_each_rank(result):
    assert {rank: record["epoch"] for rank, record in result.last("epoch").items()} == {0: 2, 1: 1}
