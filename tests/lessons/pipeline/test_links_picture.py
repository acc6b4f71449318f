"""The picture of the link between hosts: bytes as reported, times as bytes over speed."""

import pytest
from distlab.lessons.pipeline.pictures import links


def records(pipeline=125_000, replicas=12_500_000):
    layouts = {"replicas between hosts": replicas, "pipeline between hosts": pipeline}
    return [
        {"layout": layout, "rank": rank, "host": f"node{1 + rank // 2}", "to_other_host": size + 1000 * rank}
        for layout, size in layouts.items()
        for rank in range(4)
    ]


def test_a_host_sends_what_its_ranks_send_and_the_busier_one_counts():
    assert links.busiest(records()) == {"replicas between hosts": 25_005_000, "pipeline between hosts": 255_000}


def test_time_is_bytes_over_speed():
    assert links.seconds(125_000_000, 1) == 1
    (first, second) = links.table(records(pipeline=0))
    assert first == {
        "layout": "replicas between hosts",
        "sent in a step": "23.8 MB",
        "at 1 Gbit/s": "200 ms",
        "at 10 Gbit/s": "20 ms",
        "at 100 Gbit/s": "2 ms",
    }
    assert second["sent in a step"] == "4.88 KB"


def test_a_line_for_each_layout_the_lower_one_first():
    figure = links.picture(records())
    (axes,) = figure.axes
    low, high = axes.lines
    assert list(low.get_xdata()) == [1, 10, 100]
    assert list(low.get_ydata()) == pytest.approx([2.04, 0.204, 0.0204])
    assert list(high.get_ydata()) == pytest.approx([200.04, 20.004, 2.0004])
    assert (axes.get_xscale(), axes.get_yscale()) == ("log", "log")
    assert axes.get_title(loc="left") == "Pipeline between hosts: 98 times fewer bytes on the link"
    labels = [text.get_text() for text in axes.get_legend().get_texts()]
    assert labels == ["pipeline between hosts: 249 KB", "replicas between hosts: 23.8 MB"]
    assert "replicas between hosts, 23.8 MB: 200 ms at 1 Gbit/s, 20 ms at 10 Gbit/s" in figure.alt


def test_what_cannot_be_drawn_is_said():
    with pytest.raises(ValueError, match="no 'links' records to draw"):
        links.picture([])
    alone = [record | {"to_other_host": 0} for record in records()]
    with pytest.raises(ValueError, match="a layout sends nothing to another host: run on two hosts"):
        links.picture(alone)
