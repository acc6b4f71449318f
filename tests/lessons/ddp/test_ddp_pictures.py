"""The numbers in the figures are the numbers that ranks reported."""

import pytest
from distlab.drawing.colours import PALE, RANKS
from distlab.drawing.figure import Picture
from distlab.lessons.ddp.pictures import accuracy, gradients, shards
from distlab.lessons.ddp.pictures import no_sync as traffic
from distlab.lessons.ddp.pictures import overlap as timeline
from distlab.lessons.ddp.pictures import speed as scaling
from distlab.lessons.ddp.pictures import uneven as waiting
from drawn import boxes, colours, stretches, words
from matplotlib.collections import LineCollection
from matplotlib.colors import to_hex

# -- shards -------------------------------------------------------------------------------------

DEALT = [
    {"rank": 0, "epoch": 0, "set_epoch": True, "samples": [2, 0]},
    {"rank": 1, "epoch": 0, "set_epoch": True, "samples": [1, 2]},
    {"rank": 0, "epoch": 1, "set_epoch": True, "samples": [1, 2]},
    {"rank": 1, "epoch": 1, "set_epoch": True, "samples": [0, 1]},
]


def test_a_sample_is_coloured_by_its_rank_and_divided_when_two_hold_it():
    assert shards.holders(DEALT, 0, True) == {0: [0], 1: [1], 2: [0, 1]}
    (axes,) = shards.picture(DEALT).axes
    cells = {
        (round(box.get_x() + 0.5, 2), round(box.get_y() + 0.44), box.get_width()): to_hex(box.get_facecolor())
        for box in boxes(axes)
    }
    assert cells == {
        (0, 0, 1): RANKS[0],
        (1, 0, 1): RANKS[1],
        (2, 0, 0.5): RANKS[0],
        (2.5, 0, 0.5): RANKS[1],
        (0, 1, 1): RANKS[1],
        (1, 1, 0.5): RANKS[0],
        (1.5, 1, 0.5): RANKS[1],
        (2, 1, 1): RANKS[0],
    }
    assert axes.get_xlabel() == "sample (its index in the data set)" and axes.get_ylabel() == "epoch"


def test_the_hand_of_a_rank_keeps_its_order():
    assert shards.hand(DEALT, rank=0, epoch=0, set_epoch=True) == [2, 0]


# -- gradients ----------------------------------------------------------------------------------


def test_own_average_and_whole_are_drawn_where_they_are():
    records = [
        {"rank": 1, "own": [0.3, -0.1], "averaged": [0.2, 0.1], "whole": [0.25, 0.15]},
        {"rank": 0, "own": [0.1, 0.3], "averaged": [0.2, 0.1], "whole": [0.25, 0.15]},
    ]
    (axes,) = gradients.picture(records).axes
    assert [list(line.get_ydata()) for line in axes.lines] == [[0.1, 0.3], [0.3, -0.1], [0.25, 0.15]]
    assert [to_hex(line.get_color()) for line in axes.lines[:2]] == list(RANKS[:2])
    (average,) = [collection for collection in axes.collections if isinstance(collection, LineCollection)]
    assert [segment[0][1] for segment in average.get_segments()] == [0.2, 0.1]


# -- timeline -----------------------------------------------------------------------------------

SPANS = [
    {"kind": "forward", "name": "f", "start": 0.0, "end": 2.0},
    {"kind": "backward", "name": "b", "start": 2.0, "end": 5.0},
    {"kind": "backward", "name": "b", "start": 5.0, "end": 6.0},
    {"kind": "communication", "name": "gloo:all_reduce", "start": 4.0, "end": 8.0},
]


def test_timeline_draws_each_kind_when_it_was_and_says_the_overlap():
    record = {"rank": 1, "host": "node1", "bucket_mb": 4.0, "buckets": [[1], [0]], "spans": SPANS}
    single = record | {"bucket_mb": 1000.0, "buckets": [[1, 0]], "spans": SPANS[:3]}
    above, axes = timeline.picture([record, single]).axes
    assert above.get_title(loc="left") == "one bucket"
    assert stretches(axes) == [[(0, 2)], [(2, 6)], [(4, 8)]]
    assert "50% overlap" in "".join(words(axes))
    assert axes.get_xlabel() == "milliseconds since the step began"
    assert "2 buckets of at most 4 MB" in axes.get_title(loc="left")


# -- traffic ------------------------------------------------------------------------------------


def test_traffic_is_dark_where_bytes_travel():
    records = [{"way": "each time", "bytes": [2000, 2000]}, {"way": "once", "bytes": [0, 2000]}]
    (axes,) = traffic.picture(records).axes
    assert colours(boxes(axes)) == [RANKS[0], RANKS[0], PALE, RANKS[0]]
    assert words(axes) == ["2 kB", "2 kB", "= 4 kB", "nothing", "2 kB", "= 2 kB"]


# -- waiting ------------------------------------------------------------------------------------


def test_batches_are_full_where_they_were_trained():
    records = [{"rank": 0, "number": 2}, {"rank": 0, "number": 1}, {"rank": 1, "number": 1}]
    assert waiting.reached(records) == {0: 2, 1: 1}
    left, right = waiting.picture({1: 1, 0: 3}, {"a": {0: 2, 1: 1}, "b": {0: 3, 1: 1}}).axes
    full = colours(boxes(left))
    assert full == [RANKS[0], RANKS[0], "#ffffff", RANKS[1]]
    assert "#ffffff" not in colours(boxes(right))


# -- scaling ------------------------------------------------------------------------------------


def speed(world_size: int, per_rank: float, silent: float) -> list[dict]:
    processors = ["m core 0", "m core 1"]
    return [
        {
            "rank": rank,
            "world_size": world_size,
            "processors": processors,
            "images_per_second": [per_rank / 2, per_rank],
            "images_per_second_silent": [silent, silent / 3],
        }
        for rank in range(world_size)
    ]


def test_scaling_table_counts_from_one_rank_and_knows_the_cores():
    rows = scaling.table(speed(4, 90.0, 120.0) + speed(1, 200.0, 200.0) + speed(2, 180.0, 200.0))
    assert [row["ranks"] for row in rows] == [1, 2, 4]
    assert [row["images_per_second"] for row in rows] == [200, 360, 360]
    assert [row["times_one_rank"] for row in rows] == pytest.approx([1, 1.8, 1.8])
    assert [row["of_ideal"] for row in rows] == pytest.approx([1, 0.9, 0.45])
    assert [row["could_be"] for row in rows] == [1, 2, 2]
    assert [row["talking"] for row in rows] == pytest.approx([0, 0.1, 0.25])


def test_the_best_round_is_one_round_of_all_ranks():
    records = [{"speed": [9.0, 5.0, 1.0]}, {"speed": [1.0, 6.0, 8.0]}]
    assert scaling.best_round(records, "speed") == [5, 6]


def test_scaling_bars_stack_ranks_beside_ideal_and_limit():
    (axes,) = scaling.picture(speed(1, 200.0, 200.0) + speed(4, 90.0, 120.0)).axes
    bars = [(box.get_y(), box.get_height(), to_hex(box.get_facecolor())) for box in boxes(axes)]
    assert bars == [(0, 200, RANKS[0]), *((90 * rank, 90, RANKS[rank]) for rank in range(4))]
    (ideal,) = axes.lines
    assert list(ideal.get_ydata()) == [200, 800]
    limits = [
        collection.get_segments()[0][0][1] for collection in axes.collections if isinstance(collection, LineCollection)
    ]
    assert limits == [200, 400]
    assert axes.get_title(loc="left") == "4 ranks on 2 cores: 1.8 times one rank"


# -- accuracy -----------------------------------------------------------------------------------


def test_accuracy_has_a_line_for_each_rate_in_order_of_batch():
    records = [
        {"batch": 256, "scaled": True, "accuracy": 0.8},
        {"batch": 64, "scaled": True, "accuracy": 0.82},
        {"batch": 256, "scaled": False, "accuracy": 0.6},
    ]
    (axes,) = accuracy.picture(records).axes
    without, with_, reference = axes.lines
    assert list(without.get_xdata()) == [64, 256] and list(without.get_ydata()) == pytest.approx([82, 60])
    assert list(with_.get_xdata()) == [64, 256] and list(with_.get_ydata()) == pytest.approx([82, 80])
    assert reference.get_ydata()[0] == pytest.approx(82)
    assert axes.get_xlabel() == "samples in one update, all ranks"
    assert axes.get_ylabel() == "validation accuracy (%)"


# -- all ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("module", [shards, gradients, timeline, traffic, scaling, accuracy])
def test_nothing_to_draw_is_said(module):
    with pytest.raises(ValueError, match="records to draw: did the run end well"):
        module.picture([])


def test_a_picture_shows_itself_with_its_words():
    picture = shards.picture(DEALT)
    assert isinstance(picture, Picture)
    data, metadata = picture._repr_mimebundle_()
    assert data["image/png"].startswith(b"\x89PNG") and len(data["image/png"]) < 100_000
    assert metadata["image/png"]["alt"] == picture.alt and "3 samples over 2 epochs" in picture.alt
    assert data["text/plain"].split() == ["picture:", *picture.alt.split()]
    assert all(len(line) <= 100 for line in data["text/plain"].splitlines())
