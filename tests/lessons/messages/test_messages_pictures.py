"""The pictures of lesson 02 show what ranks reported: who waits, who holds what, who sends which chunk."""

import pytest
from distlab.drawing.colours import PAPER, RANKS
from distlab.lessons.messages.pictures import backends, collectives, deadlock, mesh, overlap, ring, sizes
from drawn import boxes, colours, texts, words
from matplotlib.colors import to_hex
from matplotlib.patches import Circle, FancyArrowPatch, FancyBboxPatch

# -- deadlock -----------------------------------------------------------------------------------


def call(rank: int, does: str, *peers: int, event: str = "waits") -> dict:
    return {"rank": rank, "host": f"node{1 + rank // 2}", "event": event, "does": does, "peers": list(peers)}


CIRCLE = [call(rank, "recv", (rank - 1) % 4) for rank in range(4)]


def test_calls_that_came_back_are_no_waits():
    records = [
        call(0, "send", 1),
        call(0, "send", 1, event="served"),
        call(0, "recv", 3),
        call(1, "batch", 2, 0),
    ]
    found = deadlock.waits(records)
    assert [(wait.rank, wait.does, wait.peer) for wait in found] == [(0, "recv", 3), (1, "batch", 2), (1, "batch", 0)]


def test_the_same_call_twice_waits_once_when_one_came_back():
    records = [call(0, "recv", 1), call(0, "recv", 1, event="served"), call(0, "recv", 1)]
    assert len(deadlock.waits(records)) == 1


@pytest.mark.parametrize(
    ("edges", "expected"),
    [
        ({0: 3, 1: 0, 2: 1, 3: 2}, [0, 3, 2, 1]),
        ({0: 1, 1: 2, 2: 1}, [1, 2]),
        ({0: 1, 1: 2, 2: 3}, []),
        ({3: 3}, [3]),
        ({}, []),
    ],
)
def test_a_circle_is_found_where_there_is_one(edges, expected):
    waiting = [deadlock.Wait(rank, "node1", "recv", peer) for rank, peer in edges.items()]
    assert deadlock.cycle(waiting) == expected


def test_the_sentence_names_every_rank_of_the_circle_and_no_other():
    waiting = deadlock.waits([call(0, "recv", 1), call(1, "recv", 2), call(2, "send", 1)])
    assert deadlock.explain(waiting) == (
        "rank 1 waits in recv for rank 2, and rank 2 waits in send for rank 1: a circle, so nobody can go on"
    )
    assert deadlock.explain(waiting[:1]) == ("rank 0 waits in recv for rank 1: no circle, so somebody left or is late")
    assert deadlock.explain([]) == "nobody waits"


def test_an_arrow_goes_from_who_waits_to_whom_it_needs():
    picture = deadlock.picture(CIRCLE)
    (axes,) = picture.axes
    circles = boxes(axes, Circle)
    assert colours(circles) == list(RANKS)
    centres = [tuple(circle.get_center()) for circle in circles]
    arrows = boxes(axes, FancyArrowPatch)
    ends = [tuple(centres.index(tuple(end)) for end in arrow._posA_posB) for arrow in arrows]
    assert ends == [(0, 3), (1, 0), (2, 1), (3, 2)]
    assert words(axes).count("recv") == 4 and words(axes).count("node2") == 2
    assert axes.get_title(loc="left") == "4 of 4 ranks wait for each other in a circle"
    assert "rank 0 waits in recv for rank 3" in picture.alt


# -- collectives --------------------------------------------------------------------------------


def held(name: str, before: list[list[float]], after: list[list[float]]) -> list[dict]:
    pairs = enumerate(zip(before, after, strict=True))
    return [{"rank": rank, "name": name, "before": had, "after": has} for rank, (had, has) in pairs]


def test_a_number_keeps_the_colour_of_the_rank_it_came_from():
    (axes, empty) = collectives.picture(held("all_to_all", [[0, 1], [10, 11]], [[0, 10], [1, 11]]), ["all_to_all"]).axes
    a, b = RANKS[:2]
    assert colours(boxes(axes)) == [a, a, a, b, b, b, a, b]
    assert words(axes) == ["0", "1", "0", "10", "10", "11", "1", "11"]
    assert not empty.axison


def test_a_sum_has_a_stripe_of_every_rank_and_an_empty_place_has_none():
    records = held("all_reduce", [[0, 1], [10, 11]], [[10, 12], [10, 12]])
    (axes, _) = collectives.picture(records, ["all_reduce"]).axes
    # 0 + 10 = 10 is a sum too, though rank 1 had a 10.
    assert colours(boxes(axes)) == [RANKS[0]] * 2 + list(RANKS[:2]) * 2 + [RANKS[1]] * 2 + list(RANKS[:2]) * 2
    records = held("broadcast", [[0], [collectives.EMPTY]], [[0], [0]])
    (axes, _) = collectives.picture(records, ["broadcast"]).axes
    assert colours(boxes(axes)) == [RANKS[0], RANKS[0], PAPER, RANKS[0]]
    assert words(axes) == ["0", "0", "0"]


def test_a_number_of_nobody_is_shown_as_nobodys():
    assert collectives.origins([[0, 1], [10, 11]], [7, 1]) == ["nowhere", 0]
    # A place that was empty before is nobody's, too.
    assert collectives.origins([[0], [collectives.EMPTY]], [collectives.EMPTY, 0]) == ["nowhere", 0]


def test_a_collective_without_records_is_said():
    with pytest.raises(ValueError, match="no records of gather: there are scatter"):
        collectives.picture(held("scatter", [[0, 1], []], [[0], [1]]), ["gather"])


def test_operations_show_results_and_refusals():
    records = [
        {"rank": rank, "name": name, "before": before, "after": after, "refused": None if after else "no bits"}
        for name, after in (("MAX", [5]), ("PRODUCT", [10]), ("BAND", None))
        for rank, before in enumerate([[2], [5]])
    ]
    largest, product, refused, rest = collectives.picture_of_ops(records).axes
    assert colours(boxes(largest)) == [RANKS[0], RANKS[1], RANKS[1]]
    assert colours(boxes(product)) == [*RANKS[:2], *RANKS[:2]] and words(product) == ["2", "5", "10"]
    assert words(refused) == ["2", "5", "refused here"]
    assert texts(largest.get_yticklabels()) == ["rank 0", "rank 1", "all get"]


def test_traffic_knows_what_must_travel_and_what_was_counted():
    records = [
        {"rank": rank, "name": name, "size": 4_000_000, "sent": sent}
        for name, sents in (("all_reduce", [6e6] * 4), ("scatter", [3e6, 0, 0, 0]), ("gather", [None] * 4))
        for rank, sent in enumerate(sents)
    ]
    rows = {row["collective"]: list(row.values())[1:] for row in collectives.traffic(records)}
    assert rows == {
        "scatter": ["(n-1)/n S", 3.0, 3.0, 3.0],
        "gather": ["(n-1)/n S", 3.0, None, None],
        "all_reduce": ["2 (n-1) S", 24.0, 24.0, 6.0],
    }


# -- mesh ---------------------------------------------------------------------------------------


def test_a_frame_goes_round_each_group():
    groups = {"device": [[0, 1], [2, 3]], "host": [[0, 2], [1, 3]]}
    records = [
        {
            "rank": rank,
            "host": f"node{1 + rank // 2}",
            "place": [rank // 2, rank % 2],
            "ranks": {axis: next(group for group in both if rank in group) for axis, both in groups.items()},
        }
        for rank in (2, 0, 3, 1)
    ]
    assert mesh.groups(records, "host") == groups["host"]
    sums = [{"rank": rank, "within": rank, "across": 10 + rank, "both": 5} for rank in range(4)]
    within, across, both = mesh.picture(records, sums).axes
    frames = [boxes(axes, FancyBboxPatch) for axes in (within, across, both)]
    spans = [[(round(frame.get_width(), 2), round(frame.get_height(), 2)) for frame in some] for some in frames]
    assert spans == [[(1.84, 0.8)] * 2, [(0.84, 1.8)] * 2, [(1.84, 1.8)]]
    assert "rank 3\n13" in words(across) and "rank 3\n5" in words(both)
    assert texts(within.get_yticklabels()) == ["node1", "node2"]


# -- ring ---------------------------------------------------------------------------------------

STEPS = [
    {"rank": 0, "number": 0, "to": 1, "chunk": 0, "held": [1, 1]},
    {"rank": 1, "number": 0, "to": 0, "chunk": 1, "held": [10, 10]},
    {"rank": 0, "number": 1, "to": 1, "chunk": 1, "held": [1, 11]},
    {"rank": 1, "number": 1, "to": 0, "chunk": 0, "held": [11, 10]},
]
ENDS = [{"rank": rank, "held": [11, 11]} for rank in (1, 0)]


def test_stripes_say_whose_numbers_are_in_a_chunk():
    assert ring.contributors(1011, 4) == [0, 1, 3]
    picture = ring.picture(STEPS, ENDS)
    first, second, end, rest = picture.axes
    # Two chunks and a frame round the one that travels, for each rank.
    a, b = RANKS[:2]
    assert colours(box for box in boxes(first) if box.get_facecolor()[3]) == [a, a, b, b]
    framed = [(round(box.get_x()), round(box.get_y() + 0.41)) for box in boxes(second) if not box.get_facecolor()[3]]
    assert framed == [(1, 0), (0, 1)]
    assert colours(boxes(end)) == [a, b] * 4
    titles = [axes.get_title(loc="left") for axes in (first, second, end)]
    assert titles == ["step 1: add", "step 2: copy", "end"]
    assert words(first) == ["→ 1", "→ 0"] and not rest.axison
    assert "4 of 4 chunks hold numbers of all ranks" in picture.alt


def test_a_sum_that_lacks_a_rank_is_not_called_whole():
    assert "3 of 4 chunks" in ring.picture(STEPS, [{"rank": 0, "held": [11, 11]}, {"rank": 1, "held": [10, 11]}]).alt


# -- overlap ------------------------------------------------------------------------------------


def test_waiting_is_hatched_and_the_end_is_written():
    records = [
        {"rank": 1, "way": "recv", "kind": "wait", "start": 0.0, "end": 4.0},
        {"rank": 1, "way": "recv", "kind": "work", "start": 4.0, "end": 9.0},
        {"rank": 1, "way": "irecv", "kind": "work", "start": 0.0, "end": 5.0},
    ]
    assert [overlap.done(records, way, 1) for way in ("recv", "irecv")] == [9.0, 5.0]
    above, below = overlap.picture(records).axes
    assert [to_hex(collection.get_facecolor()[0]) for collection in above.collections] == [PAPER, RANKS[1]]
    assert "".join(words(above)).split() == ["9", "ms"] and "".join(words(below)).split() == ["5", "ms"]
    assert above.get_title(loc="left").startswith("recv") and below.get_title(loc="left").startswith("irecv")


# -- sizes --------------------------------------------------------------------------------------


def test_times_by_size_without_the_one_that_is_held_out():
    records = [
        {"way": "ring", "size": 4096, "seconds": 0.2, "held_out": False},
        {"way": "ring", "size": 1024, "seconds": 0.1, "held_out": False},
        {"way": "ring", "size": 2048, "seconds": 0.15, "held_out": True},
        {"way": "all_reduce", "size": 1024, "seconds": 0.3, "held_out": False},
    ]
    assert list(sizes.times(records, "ring").items()) == [(1024, 0.1), (4096, 0.2)]
    assert sizes.held_out(records, "ring") == (2048, 0.15)
    picture = sizes.picture({way: sizes.times(records, way) for way in ("ring", "all_reduce")}, "title")
    (axes,) = picture.axes
    assert [list(line.get_ydata()) for line in axes.lines] == [[100.0, 200.0], [300.0]]
    assert texts(axes.get_xticklabels()) == ["1 KB", "4 KB"]
    assert axes.get_xlabel() == "size of the tensor on each rank" and axes.get_ylabel() == "milliseconds"


# -- backends -----------------------------------------------------------------------------------


def test_the_table_has_a_column_for_each_backend_and_device():
    records = [
        {"event": "backend", "backend": "gloo", "built_in": True},
        {"event": "operation", "backend": "gloo", "device": "cpu", "name": "barrier", "refused": None},
        {"event": "operation", "backend": "gloo", "device": "cuda", "name": "barrier", "refused": "x" * 99},
        {"event": "group", "backend": "nccl", "device": "cuda", "refused": "no cuda device here"},
        {"event": "backend", "backend": "mpi", "built_in": False},
    ]
    (row,) = backends.table(records)
    assert row.pop("gloo on cuda") == "x" * 41 + "…"
    assert row == {
        "operation": "barrier",
        "gloo on cpu": "✓",
        "nccl on cuda": "no cuda device here",
        "mpi": "not in this torch",
    }
    assert backends.refused(records, "gloo", "cpu") == [] and backends.refused(records, "gloo", "cuda") == ["barrier"]


# -- all ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "draw",
    [
        deadlock.picture,
        collectives.picture_of_ops,
        collectives.traffic,
        overlap.picture,
        backends.table,
        lambda records: collectives.picture(records, ["reduce"]),
        lambda records: mesh.picture(records, records),
        lambda records: ring.picture(records, records),
        lambda records: sizes.picture({}, "title"),
    ],
)
def test_nothing_to_draw_is_said(draw):
    with pytest.raises(ValueError, match="records to draw: did the run end well"):
        draw([])
