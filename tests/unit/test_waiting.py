"""Waiting until something holds."""

import math
import time

import pytest
from distlab.waiting import wait_until


def test_it_ends_with_the_first_true_answer():
    answers = [None, 0, "there", "later"]
    assert wait_until(lambda: answers.pop(0), math.inf, every=0.001) == "there"
    assert answers == ["later"]


def test_the_time_is_up():
    asked = []
    began = time.monotonic()
    assert wait_until(lambda: asked.append(time.monotonic() - began), 0.2, every=0.15) is None
    # At once, after a pause, and when the time is up: not after a pause that goes beyond it.
    assert len(asked) == 3 and 0.2 <= asked[-1] < 0.29


def test_without_time_it_asks_once():
    asked = []
    assert not wait_until(lambda: asked.append(1), 0)
    assert asked == [1]
    assert wait_until(lambda: "there", -1) == "there"


def test_an_error_ends_it():
    with pytest.raises(ZeroDivisionError):
        wait_until(lambda: 1 / 0, 10)
