"""Pictures of DataParallel: what they draw is what a process reported."""

from collections import Counter

import pytest
from distlab.drawing.colours import PAPER, RANKS
from distlab.lessons.data_parallel.pictures import memory as device_memory
from distlab.lessons.data_parallel.pictures import parts as step_parts
from distlab.lessons.data_parallel.pictures import speed as speedup
from distlab.lessons.data_parallel.pictures import step as four_steps
from distlab.lessons.data_parallel.pictures import threads as turns
from drawn import boxes, colours, stretches, texts, words
from matplotlib.patches import Circle, FancyBboxPatch, Rectangle

# -- the four steps -----------------------------------------------------------------------------

STEP = {
    "batch": 3,
    "devices": ["cpu"] * 3,
    "samples": [[0, 1], [2]],
    "weight_bytes": [3232, 3232],
    "gradients": [0.25, -0.5],
    "gradient": -0.25,
}


def test_samples_outputs_copies_and_gradients_have_the_colour_and_the_numbers_of_their_replica():
    figure = four_steps.picture(STEP)
    (axes,) = figure.axes
    squares = [patch for patch in axes.patches if type(patch) is Rectangle and patch.get_height() == 1]
    scatter = four_steps.STAGES["1 scatter"][0]
    places = [(0, 0), (1, 0), (2, 0), (scatter, 0), (scatter + 1, 0), (scatter, four_steps.ROW)]
    whose = [RANKS[replica] for replica in (0, 0, 1, 0, 0, 1)]
    found = dict(zip([(square.get_x(), square.get_y() + 0.5) for square in squares], colours(squares), strict=True))
    assert found == dict(zip(places, whose, strict=True))
    assert Counter(colours(boxes(axes, Circle))) == {RANKS[0]: 4, RANKS[1]: 2}
    assert {"the model", "copy 3.2 kB", "+0.2500", "-0.5000", "-0.2500"} <= set(words(axes))
    # The model and the sum are on the main device and full; copies and their parts are empty.
    full = Counter(colours(boxes(axes, FancyBboxPatch)))
    assert (full[RANKS[0]], full[PAPER]) == (2, 3)
    assert texts(axes.get_yticklabels()) == ["device 0\n(main)", "device 1", "device 2"]
    assert "replica 0: 2, replica 1: 1" in figure.alt


def test_many_samples_shrink_to_the_room_there_is():
    samples = [list(range(start, start + 8)) for start in (0, 8, 16, 24)]
    step = STEP | {"samples": samples, "gradients": [0.1] * 4, "weight_bytes": [1] * 4, "devices": ["cpu"] * 4}
    (axes,) = four_steps.picture(step | {"batch": 32}).axes
    left, width = four_steps.STAGES["the batch"]
    cells = [
        patch for patch in axes.patches if type(patch) is Rectangle and patch.get_y() < 0 and patch.get_height() < 0.9
    ]
    assert max(cell.get_x() + cell.get_width() for cell in cells if cell.get_x() < width) == pytest.approx(left + width)


# -- the parts of a step ------------------------------------------------------------------------

PARTS = [
    {
        "model": "mlp",
        "replicas": 2,
        "threads": 2,
        "device": "cpu",
        "milliseconds": {
            "scatter": 1.0,
            "replicate": 2.0,
            "parallel_apply": 3.0,
            "gather": 0.5,
            "backward": 4.0,
            "update": 0.5,
            "whole": 12.0,
        },
    },
    {
        "model": "mlp",
        "replicas": 0,
        "threads": 1,
        "device": "cpu",
        "milliseconds": {"parallel_apply": 1.0, "backward": 2.0, "update": 1.0, "whole": 4.0},
    },
]


def test_parts_follow_each_other_and_one_device_comes_first():
    figure = step_parts.picture(PARTS)
    (axes,) = figure.axes
    bars = [(round(patch.get_x(), 3), round(patch.get_width(), 3)) for patch in axes.patches]
    assert bars == [(0, 1), (1, 2), (3, 1), (0, 1), (1, 2), (3, 3), (6, 0.5), (6.5, 4), (10.5, 0.5)]
    assert texts(axes.get_yticklabels()) == ["one device, 1 core", "2 replicas, 2 cores"]
    assert step_parts.times(PARTS, "mlp") == 3
    assert axes.get_title(loc="left") == "mlp: 3.0 times as long on replicas"
    assert axes.get_xlabel() == "milliseconds of one step"
    assert "mlp, one device, 1 core: 4.0 ms; mlp, 2 replicas, 2 cores: 12.0 ms" in figure.alt


# -- memory -------------------------------------------------------------------------------------


def holding(replica, main, measured=None):
    sizes = {"weights": 1e6, "gradients": 1e6, "activations": 5e5, "batch": 4e5, "gathered": 0, "optimizer": 0}
    return {"replica": replica, "bytes": sizes | main, "measured": measured}


def test_memory_adds_up_and_the_main_device_is_named():
    records = [holding(1, {}), holding(0, {"optimizer": 1e6, "gathered": 1e5})]
    figure = device_memory.picture(records)
    (axes,) = figure.axes
    assert words(axes) == ["4.00 MB", "2.90 MB"]
    assert texts(axes.get_yticklabels()) == ["device 0 (main)", "device 1"]
    assert "1.4 times" in axes.get_title(loc="left") and axes.get_xlabel() == "megabytes"
    assert "device 0: 4.00, device 1: 2.90" in figure.alt
    assert not axes.lines


def test_what_the_allocator_measured_is_a_mark():
    (axes,) = device_memory.picture([holding(0, {}, 5e6), holding(1, {}, 3e6)]).axes
    assert [list(line.get_xdata()) for line in axes.lines] == [[5], [3]]
    assert axes.get_xlim()[1] > 5


# -- threads ------------------------------------------------------------------------------------


def test_overlap_is_a_share_of_the_one_that_works_less():
    assert turns.overlap([[[0, 10]], [[10, 20]]]) == 0
    assert turns.overlap([[[0, 10]], [[0, 10]]]) == 1
    assert turns.overlap([[[0, 4], [6, 10]], [[2, 8]]]) == pytest.approx(4 / 6)
    assert turns.overlap([[], [[2, 8]]]) == 0


def test_a_bar_is_when_a_thread_was_at_work():
    record = {"kind": "Python", "alone": 0.01, "together": 0.02, "spans": [[[0, 5], [10, 15]], [[5, 10]]]}
    figure = turns.picture([record])
    (axes,) = figure.axes
    assert stretches(axes) == [[(0, 5), (10, 15)], [(5, 10)]]
    assert axes.get_title(loc="left").startswith("Python: two threads take 2.0 times as long")
    assert "Python: 0% of the time both at work" in figure.alt
    assert [line.get_xdata()[0] for line in axes.lines] == [10]


# -- speed --------------------------------------------------------------------------------------


def speed(kind, devices, threads, training, inference, rank=0, net="convolutions"):
    rates = {"training": training, "inference": inference}
    known = {"net": net, "kind": kind, "devices": devices, "threads": threads, "device": "cpu"}
    return known | {"rank": rank, "images_per_second": rates}


SPEEDS = [
    speed("device", 1, 1, [100.0, 90.0], [200.0, 180.0]),
    speed("replicas", 2, 2, [120.0, 150.0], [380.0, 100.0]),
    speed("ranks", 2, 2, [90.0, 10.0], [150.0, 10.0], rank=0),
    speed("ranks", 2, 2, [80.0, 100.0], [150.0, 20.0], rank=1),
    speed("device", 1, 1, [10.0], [10.0], net="small layers"),
]


def test_speeds_count_from_the_first_case_of_a_network_and_ranks_add_up_in_one_round():
    rows = speedup.table(SPEEDS)
    assert [row["training"] for row in rows] == [100, 150, 170, 10]
    assert [row["training_times"] for row in rows] == [1, 1.5, 1.7, 1]
    assert [row["inference_times"] for row in rows] == [1, 1.9, 1.5, 1]


def test_a_panel_for_each_network_and_kind_of_work():
    figure = speedup.picture(SPEEDS)
    titles = [axes.get_title(loc="left") for axes in figure.axes]
    assert titles == [f"{net}: {work}" for net in ("convolutions", "small layers") for work in speedup.WORK]
    widths = [round(patch.get_width(), 2) for patch in figure.axes[1].patches]
    assert widths == [1, 1.9, 1.5]
    labels = texts(figure.axes[0].get_yticklabels())
    assert labels == ["1 device, 1 core", "2 replicas, 2 cores", "2 ranks, 2 cores"]
    assert "2 replicas, 2 cores: training 1.50, inference 1.90" in figure.alt


@pytest.mark.parametrize("module", [four_steps, step_parts, device_memory, turns, speedup])
def test_nothing_to_draw_is_one_sentence(module):
    with pytest.raises(ValueError, match=r"no '\w+' records to draw"):
        module.picture({} if module is four_steps else [])
