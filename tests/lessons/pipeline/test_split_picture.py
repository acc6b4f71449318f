"""The picture of pieces over two devices shows the times that were measured."""

import pytest
from distlab.lessons.pipeline.pictures import split_times as split_sweep
from drawn import texts


def sweep(overlaps, **times):
    return [
        {"splits": int(name[1:]), "milliseconds": time, "overlaps": overlaps, "rank": 0} for name, time in times.items()
    ]


def said(figure):
    (axes,) = figure.axes
    return axes.get_title(loc="left"), texts(axes.texts)


def test_a_line_over_pieces_and_one_for_the_whole_batch():
    figure = split_sweep.picture(sweep(True, s4=26.0, s1=40.0, s2=30.0))
    (axes,) = figure.axes
    whole, line = axes.lines
    assert (list(line.get_xdata()), list(line.get_ydata())) == ([1, 2, 4], [40, 30, 26])
    assert set(whole.get_ydata()) == {40}
    assert axes.get_xscale() == "log" and texts(axes.get_xticklabels()) == ["1", "2", "4"]
    assert (axes.get_xlabel(), axes.get_ylabel()) == ("pieces of a batch", "milliseconds per step")
    assert axes.get_ylim()[0] == 0
    assert "1: 40.0, 2: 30.0, 4: 26.0" in figure.alt
    assert said(figure) == ("Two devices: 4 pieces take 0.65 of the whole batch's time", ["the whole batch: 40 ms"])


def test_one_device_gains_nothing_and_says_so():
    title, _ = said(split_sweep.picture(sweep(False, s1=32.0, s2=30.0, s16=96.0)))
    assert title == "Both stages on one device: nothing overlaps, 16 pieces take 3.0 times as long"


def test_two_devices_may_gain_nothing():
    assert said(split_sweep.picture(sweep(True, s1=3.0, s2=5.0)))[0] == "Two devices: pieces save no time here"


def test_what_is_missing_is_said():
    with pytest.raises(ValueError, match="no 'sweep' records to draw"):
        split_sweep.picture([])
    with pytest.raises(ValueError, match="no record of a whole batch"):
        split_sweep.picture(sweep(True, s2=5.0))
