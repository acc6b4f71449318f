"""The pictures of pipelines show the records that they were given."""

from itertools import combinations

import pytest
from distlab.drawing.colours import RANKS
from distlab.lessons.pipeline.pictures import balance, bubbles
from distlab.lessons.pipeline.pictures import memory as stage_memory
from distlab.lessons.pipeline.pictures import steps as gantt
from distlab.lessons.pipeline.schedules import ideal, simulate
from drawn import boxes, colours, stretches, texts, words
from matplotlib.colors import to_rgba
from matplotlib.patches import Rectangle


def lane(box: Rectangle) -> int:
    return round(box.get_y() + box.get_height() / 2)


# -- gantt ---------------------------------------------------------------------------------------


def step() -> list[dict]:
    """Two ranks, two microbatches, forward 2 ms and backward 3 ms, as ranks report it."""
    records = simulate("1f1b", 2, 2, forward=2.0, backward=3.0, message=1.0)
    return [{key: value for key, value in record.items() if key != "unit"} | {"host": "node1"} for record in records]


def test_a_box_for_each_piece_of_work_in_its_rank_s_colour_and_idle_where_no_box_is():
    figure = gantt.picture(step())
    (axes,) = figure.axes
    drawn = [(lane(box), box.get_x(), box.get_x() + box.get_width()) for box in boxes(axes)]
    spans = [(record["rank"], span) for record in step() for span in record["spans"]]
    assert drawn == [(rank, span["start"], span["end"]) for rank, span in spans]
    assert words(axes) == [str(span["microbatch"]) for _, span in spans]
    for (rank, span), box in zip(spans, boxes(axes), strict=True):
        # Forward is pale.
        assert box.get_facecolor() == pytest.approx(to_rgba(RANKS[rank], 0.4 if span["kind"] == "forward" else 1))
        assert not box.get_hatch()
    # Each rank's gaps and boxes fill the step of 17 ms and do not cross.
    for row, gaps in enumerate(stretches(axes)):
        pieces = [*gaps, *((start, end) for rank, start, end in drawn if rank == row)]
        assert all(a >= d or c >= b for (a, b), (c, d) in combinations(pieces, 2))
        assert sum(end - start for start, end in pieces) == pytest.approx(17)
    assert texts(axes.get_yticklabels()) == ["rank 0", "rank 1"]
    assert axes.get_xlabel() == "milliseconds since the step began"
    assert axes.get_title(loc="left") == "1f1b, 2 microbatches: bubble 41%"


def test_halves_of_backward_and_stages_of_a_rank_are_told_apart():
    records = simulate("zero-bubble", 2, 4)
    figure = gantt.picture(records)
    (axes,) = figure.axes
    spans = [(record["rank"], span) for record in records for span in record["spans"]]
    for (rank, span), box in zip(spans, boxes(axes), strict=True):
        assert bool(box.get_hatch()) == (span["kind"] == "backward weights")
        early = span["stage"] == rank
        assert box.get_y() + box.get_height() / 2 == pytest.approx(rank - 0.12 if early else rank + 0.12)
    (legend,) = figure.legends
    said = texts(legend.get_texts())
    assert said == ["forward", "backward input", "backward weights", "idle"]
    assert "the later one is drawn lower" in legend.get_title().get_text()


def test_panels_of_the_same_unit_share_their_length():
    measured, made = gantt.picture({"measured": step(), "ideal": ideal(step())}).axes
    assert measured.get_xlim() == made.get_xlim() == (0, 17)
    assert not measured.get_xlabel() and made.get_xlabel()
    assert made.get_title(loc="left") == "ideal: bubble 33%"
    measured, made = gantt.picture({"measured": step(), "ideal": simulate("1f1b", 2, 2)}).axes
    assert made.get_xlim() == (0, 9)
    assert measured.get_xlabel() == "milliseconds since the step began"
    assert made.get_xlabel() == "times of one forward since the step began"


def test_numbers_stand_only_where_they_fit():
    (axes,) = gantt.picture(simulate("gpipe", 4, 8)).axes
    assert len(words(axes)) == 4 * 8 * 2
    (crowded,) = gantt.picture(simulate("1f1b", 2, 64)).axes
    forwards = [box for box in boxes(crowded) if box.get_facecolor()[3] < 1]
    assert len(forwards) == 128 and len(words(crowded)) < 128


def test_devices_are_lanes_too_and_the_text_says_the_bubble():
    figure = gantt.picture({"naive": [record | {"schedule": "naive"} for record in step()]}, lane="device")
    assert texts(figure.axes[0].get_yticklabels()) == ["device 0", "device 1"]
    assert "a lane for each device" in figure.alt and "naive, 2 microbatches, bubble 41%" in figure.alt


# -- bubbles -------------------------------------------------------------------------------------

MEASURED = [
    {"schedule": "gpipe", "ranks": 2, "microbatches": 4, "bubble": 0.25},
    {"schedule": "gpipe", "ranks": 2, "microbatches": 1, "bubble": 0.55},
    {"schedule": "1f1b", "ranks": 2, "microbatches": 4, "bubble": 0.3},
    {"schedule": "zero-bubble", "ranks": 2, "microbatches": 4, "bubble": 0.1},
]


def test_measured_points_lie_beside_the_line_of_their_formula():
    (axes,) = bubbles.picture(MEASURED).axes
    rule, simulated, gpipe, f1b1, zero = axes.lines
    assert gpipe.get_xdata().tolist() == [1, 4] and gpipe.get_ydata().tolist() == pytest.approx([55, 25])
    assert f1b1.get_ydata().tolist() == [30] and zero.get_ydata().tolist() == [10]
    line = dict(zip(rule.get_xdata(), rule.get_ydata(), strict=True))
    assert [line[m] for m in (1, 2, 4)] == pytest.approx([50, 100 / 3, 20])
    assert simulated.get_xdata().tolist() == [4] and simulated.get_ydata().tolist() == pytest.approx([4])
    assert rule.get_label() == "(p - 1) / (m + p - 1), p = 2" and gpipe.get_label() == "gpipe measured, p = 2"
    assert axes.get_xscale() == "log"


def test_the_table_has_measured_and_expected_in_order():
    rows = bubbles.table([*MEASURED, {"schedule": "interleaved", "ranks": 4, "microbatches": 4, "bubble": 0.4}])
    assert [(row["schedule"], row["microbatches"]) for row in rows] == [
        ("gpipe", 1),
        ("gpipe", 4),
        ("1f1b", 4),
        ("interleaved", 4),
        ("zero-bubble", 4),
    ]
    assert [row["measured"] for row in rows] == [0.55, 0.25, 0.3, 0.4, 0.1]
    assert [row["expected"] for row in rows] == pytest.approx([1 / 2, 1 / 5, 1 / 5, 3 / 11, 0.04])


def test_a_schedule_without_a_formula_is_named():
    with pytest.raises(ValueError, match="no schedule 'naive': use one of gpipe, 1f1b"):
        bubbles.table([MEASURED[0] | {"schedule": "naive"}])


# -- memory --------------------------------------------------------------------------------------


def held(schedule: str, rank: int, activations: int, microbatches: int = 8) -> dict:
    rest = {"parameters": 2_000_000, "gradients": 2_000_000, "optimizer": 4_000_000}
    return {"schedule": schedule, "rank": rank, "microbatches": microbatches, "activations": activations, **rest}


HELD = [
    held("1f1b", 1, 1_000_000),
    held("1f1b", 0, 2_000_000),
    held("gpipe", 1, 8_000_000),
    held("gpipe", 0, 9_000_000),
]


def test_activations_are_bars_of_each_rank_in_the_group_of_their_schedule():
    (axes,) = stage_memory.picture(HELD).axes
    assert [(round(box.get_x() + box.get_width() / 2), box.get_height()) for box in boxes(axes)] == [
        (0, 2),
        (0, 1),
        (1, 9),
        (1, 8),
    ]
    assert colours(boxes(axes)) == [*RANKS[:2], *RANKS[:2]]
    assert texts(axes.get_xticklabels()) == ["1f1b", "gpipe"]
    assert words(axes) == ["2", "1", "9", "8"]
    assert axes.get_title(loc="left") == "Activations that a rank holds at once, 8 microbatches"


def test_a_schedule_with_two_numbers_of_microbatches_has_two_groups():
    (axes,) = stage_memory.picture([held("gpipe", 0, 8_000_000), held("gpipe", 0, 4_000_000, microbatches=4)]).axes
    assert texts(axes.get_xticklabels()) == ["gpipe\n8 microbatches", "gpipe\n4 microbatches"]


def test_the_table_of_memory_has_all_parts_in_megabytes():
    assert stage_memory.table(HELD[:1]) == [
        {
            "schedule": "1f1b",
            "rank": 1,
            "microbatches": 8,
            "activations (MB)": 1.0,
            "parameters (MB)": 2.0,
            "gradients (MB)": 2.0,
            "optimizer (MB)": 4.0,
        }
    ]


# -- balance -------------------------------------------------------------------------------------


def every_cut(layers: int, stages: int):
    for cuts in combinations(range(1, layers), stages - 1):
        edges = [0, *cuts, layers]
        yield [b - a for a, b in zip(edges, edges[1:], strict=False)]


def slowest(costs: list[float], cut: list[int]) -> float:
    edges = [sum(cut[:stage]) for stage in range(len(cut) + 1)]
    return max(sum(costs[a:b]) for a, b in zip(edges, edges[1:], strict=False))


@pytest.mark.parametrize(
    ("costs", "stages", "cut"),
    [
        ([1, 1, 1, 1, 1, 1, 1, 1], 4, [2, 2, 2, 2]),
        ([5, 1, 1, 1], 2, [1, 3]),
        ([1, 1, 1, 5], 2, [3, 1]),
        ([3, 1, 4, 1, 5, 9, 2, 6], 3, [4, 2, 2]),
        ([7], 1, [1]),
    ],
)
def test_split_by_hand(costs, stages, cut):
    assert balance.split(costs, stages) == cut


@pytest.mark.parametrize("stages", [1, 2, 3, 4, 7])
@pytest.mark.parametrize("costs", [[3, 1, 4, 1, 5, 9, 2], [0.5, 0, 0, 8.25, 1, 1, 1], [9, 8, 7, 6, 5, 4, 3]], ids=str)
def test_no_other_split_has_a_quicker_slowest_stage(costs, stages):
    cut = balance.split(costs, stages)
    assert len(cut) == stages and sum(cut) == len(costs) and min(cut) >= 1
    assert slowest(costs, cut) == pytest.approx(min(slowest(costs, other) for other in every_cut(len(costs), stages)))


@pytest.mark.parametrize("stages", [0, 4])
def test_stages_that_cannot_be_are_refused(stages):
    with pytest.raises(ValueError, match=f"3 layers cannot be cut into {stages} stages: use 1 to 3"):
        balance.split([1, 1, 1], stages)


def taken(split: str, stage: int, milliseconds: float) -> dict:
    return {"rank": stage, "split": split, "stage": stage, "layers": 1, "milliseconds": milliseconds}


def test_the_slowest_stage_of_each_split_is_marked():
    records = [taken("4, 4", 1, 8.0), taken("4, 4", 0, 7.0), taken("2, 6", 0, 3.0), taken("2, 6", 1, 12.0)]
    (axes,) = balance.picture(records).axes
    assert texts(axes.get_xticklabels()) == ["layers 2, 6", "layers 4, 4"]
    assert [box.get_height() for box in boxes(axes)] == [3, 12, 7, 8]
    assert [text for text in words(axes) if "slowest" in text] == ["12.0\nslowest", "8.0\nslowest"]


# -- all -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("draw", "event"),
    [
        (lambda: gantt.picture([]), "work"),
        (lambda: gantt.picture({}), "work"),
        (lambda: gantt.picture({"measured": []}), "work"),
        (lambda: bubbles.picture([]), "bubble"),
        (lambda: stage_memory.picture([]), "memory"),
        (lambda: balance.picture([]), "balance"),
    ],
)
def test_without_records_a_picture_says_what_it_needs(draw, event):
    with pytest.raises(ValueError, match=f"no '{event}' records to draw"):
        draw()
