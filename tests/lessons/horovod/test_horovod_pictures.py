"""Horovod's timeline as trips of tensors, and the pictures of lesson 04: they show what they were given."""

import json

import pytest
from distlab.drawing.colours import RANKS
from distlab.lessons.horovod import trace as horovod_trace
from distlab.lessons.horovod.pictures import fusion
from distlab.lessons.horovod.pictures import timeline as horovod_timeline
from distlab.lessons.horovod.pictures import ways as horovod_ways
from matplotlib.colors import to_hex

MICROSECONDS = 1000


class Timeline:
    """Writes events as Horovod's timeline does: a file that is whole after each event."""

    def __init__(self) -> None:
        self.events: list[dict] = [{"name": "process_name", "ph": "M", "pid": 0, "args": {"start": 1}}]
        self.pids: dict[str, int] = {}

    def add(self, tensor: str, kind: str, at: float, name: str | None = None, **args: str) -> None:
        """An event, `at` in milliseconds."""
        if tensor not in self.pids:
            self.pids[tensor] = len(self.pids) + 1
            meta = {"name": "process_name", "ph": "M", "pid": self.pids[tensor], "args": {"name": tensor}}
            self.events.append(meta)
        event = {"ph": kind, "ts": round(at * MICROSECONDS), "pid": self.pids[tensor]}
        self.events.append(event | ({"name": name} if name else {}) | ({"args": args} if args else {}))

    def negotiate(self, tensor: str, ready: dict[int, float], kind: str = "ALLREDUCE") -> None:
        self.add(tensor, "B", min(ready.values()), f"NEGOTIATE_{kind}")
        for rank, at in ready.items():
            self.add(tensor, "X", at, str(rank))
        self.add(tensor, "E", max(ready.values()))

    def reduce(self, tensors: list[str], at: float, way: str = "GLOO_ALLREDUCE", took: float = 1.0) -> None:
        """One all-reduce: copies take 0.1 ms each, where tensors are fused."""
        for tensor in tensors:
            self.add(tensor, "B", at, "ALLREDUCE")
        activities = [("WAIT_FOR_DATA", 0.0), (way, took)]
        if len(tensors) > 1:
            activities[1:] = [(horovod_trace.COPY_IN, 0.1), (way, took), (horovod_trace.COPY_OUT, 0.1)]
        for name, long in activities:
            for tensor in tensors:
                self.add(tensor, "B", at, name)
            at += long
            for tensor in tensors:
                self.add(tensor, "E", at)
        for tensor in tensors:
            self.add(tensor, "E", at, dtype="float32", shape="[16, 1, 3, 3]")

    def text(self) -> str:
        return "[\n" + ",\n".join(json.dumps(event) for event in self.events) + "]"


def step(made: Timeline, zero: float = 0.0, way: str = "GLOO_ALLREDUCE") -> None:
    """Two tensors that travel together, while a third is negotiated, which then travels alone."""
    made.negotiate("allreduce.b", {1: zero + 0.0, 0: zero + 2.0})
    made.negotiate("allreduce.a", {1: zero + 1.0, 0: zero + 2.0})
    made.add("allreduce.c", "B", zero + 2.0, "NEGOTIATE_ALLREDUCE")
    made.add("allreduce.c", "X", zero + 2.0, "0")
    made.reduce(["allreduce.b", "allreduce.a"], zero + 3.0, way)
    made.add("allreduce.c", "X", zero + 5.0, "1")
    made.add("allreduce.c", "E", zero + 5.0)
    made.reduce(["allreduce.c"], zero + 6.0, way)


@pytest.fixture
def made() -> Timeline:
    """What a short training leaves: weights handed out, three steps of which the second is the quickest, a sum."""
    made = Timeline()
    made.negotiate("broadcast.a", {0: 0.0, 1: 0.0}, "BROADCAST")
    for zero in (100.0, 200.0, 300.0):
        step(made, zero)
    for zero in (400.0, 410.0):
        made.negotiate("allreduce.totals", {0: zero, 1: zero})
        made.reduce(["allreduce.totals"], zero + 1.0)
    return made


def trips(made: Timeline) -> list[horovod_trace.Trip]:
    return horovod_trace.trips(made.events)


# -- trace ---------------------------------------------------------------------------------------


def test_a_tensor_s_way_is_told_from_first_word_to_last_copy():
    made = Timeline()
    step(made)
    b, a, c = trips(made)
    assert (b.tensor, b.group, b.ready, b.size) == ("b", 1, {0: 2.0, 1: 0.0}, 576)
    assert (b.negotiate, b.queue, b.copy_in) == ((0.0, 2.0), (2.0, 3.0), (3.0, 3.1))
    assert (b.reduce, b.copy_out, b.begin, b.end) == ((3.1, 4.1), (4.1, 4.2), 0.0, 4.2)
    assert (a.tensor, a.group, a.ready) == ("a", 1, {0: 2.0, 1: 1.0})
    assert (c.tensor, c.group, c.ready, c.negotiate) == ("c", 2, {0: 2.0, 1: 5.0}, (2.0, 5.0))
    assert (c.copy_in, c.reduce, c.copy_out, c.end) == (None, (6.0, 7.0), None, 7.0)
    assert all(trip.waits for trip in (a, b, c))


@pytest.mark.parametrize("way", ["GLOO_ALLREDUCE", "MPI_ALLREDUCE", "NCCL_ALLREDUCE"])
def test_tensors_of_one_all_reduce_travel_together_whatever_carries_them(way):
    made = Timeline()
    step(made, way=way)
    assert [[trip.tensor for trip in group] for group in horovod_trace.groups(trips(made))] == [["b", "a"], ["c"]]


def test_unfused_all_reduces_are_each_their_own():
    made = Timeline()
    for number in range(3):
        made.reduce([f"allreduce.{number}"], number)
    assert [trip.group for trip in trips(made)] == [1, 2, 3]


def test_what_began_before_the_timeline_did_is_passed_over():
    made = Timeline()
    made.add("allreduce.a", "X", 0.0, "0")
    made.add("allreduce.a", "E", 0.0)
    step(made, 1.0)
    assert [trip.tensor for trip in trips(made)] == ["b", "a", "c"]


def test_an_all_reduce_before_a_rank_was_ready_is_seen():
    made = Timeline()
    made.negotiate("allreduce.a", {0: 0.0, 1: 5.0})
    made.reduce(["allreduce.a"], 4.0)
    made.reduce(["allreduce.b"], 9.0)
    early, unknown = trips(made)
    assert not early.waits
    assert not unknown.waits and (unknown.ready, unknown.negotiate, unknown.queue) == ({}, None, (9.0, 9.0))


def test_steps_hold_each_gradient_once_and_no_totals(made):
    steps = horovod_trace.steps(trips(made))
    assert [[trip.tensor for trip in step] for step in steps] == [["b", "a", "c"]] * 3
    assert [round(step[0].begin) for step in steps] == [100, 200, 300]


def test_what_is_rarely_reduced_is_no_gradient(made):
    made.reduce(["allreduce.mine"], 500.0)
    assert [len(step) for step in horovod_trace.steps(trips(made))] == [3, 3, 3]


def test_the_quickest_step_is_picked(made):
    step(made, 500.0)
    made.events[-1]["ts"] += 1
    for event in made.events:
        if 200_000 <= event.get("ts", 0) < 300_000:
            event["ts"] = 200_000 + (event["ts"] - 200_000) // 2
    assert horovod_trace.quickest(horovod_trace.steps(trips(made)))[0].begin == 200.0
    with pytest.raises(ValueError, match="no whole training step"):
        horovod_trace.quickest([])


def test_a_file_cut_off_anywhere_is_read_as_far_as_it_is_whole(made, tmp_path):
    file, text = tmp_path / "timeline.json", made.text()
    file.write_text(text)
    assert horovod_trace.read(file) == made.events
    whole = trips(made)
    lengths = [len(json.dumps(event)) for event in made.events]
    ends = [2 * number + sum(lengths[:number]) for number in range(1, 1 + len(lengths))]
    for length in range(len(text) - 1, 200, -61):
        file.write_text(text[:length])
        events = horovod_trace.read(file)
        assert events == made.events[: len(events)]
        assert len(events) == sum(end <= length for end in ends)
        assert horovod_trace.trips(events) == whole[: len(horovod_trace.trips(events))]
    file.write_text(text[: text.index('"allreduce.totals"')])
    assert len(horovod_trace.steps(horovod_trace.trips(horovod_trace.read(file)))) == 3


def test_no_file_and_no_timeline_are_said(tmp_path):
    with pytest.raises(FileNotFoundError, match="no timeline .*none.json: rank 0 writes it"):
        horovod_trace.read(tmp_path / "none.json")
    for text in ("", "[\n", "hello", "[\n{"):
        (tmp_path / "other").write_text(text)
        with pytest.raises(ValueError, match="other holds no events of Horovod"):
            horovod_trace.read(tmp_path / "other")


# -- timeline ------------------------------------------------------------------------------------


def bars(collection) -> tuple[float, float]:
    (path,) = collection.get_paths()
    return path.vertices[:, 0].min(), path.vertices[:, 0].max()


def near(*pairs: tuple[float, float]) -> list:
    return [pytest.approx(pair) for pair in pairs]


def test_each_rank_has_a_marker_where_it_was_ready_and_each_all_reduce_its_number():
    made = Timeline()
    step(made, 50.0)
    figure = horovod_timeline.picture(trips(made))
    top, below = figure.axes
    assert [label.get_text() for label in top.get_yticklabels()] == ["b", "a", "c"]
    markers = [marker for marker in top.lines if marker.get_marker() not in ("", "None", None)]
    drawn = {
        (marker.get_ydata()[0], marker.get_color(), marker.get_marker()): marker.get_xdata()[0] for marker in markers
    }
    zero, first = (RANKS[0], "o"), (RANKS[1], "s")
    ready = {(0, *zero): 2.0, (0, *first): 0.0, (1, *zero): 2.0, (1, *first): 1.0, (2, *zero): 2.0, (2, *first): 5.0}
    assert drawn == pytest.approx(ready)
    assert [bars(bar) for bar in top.collections] == near((3.1, 4.1), (3.1, 4.1), (6.0, 7.0))
    seen = [bars(bar) for bar in below.collections]
    negotiation, copies, reduce = near((0.0, 2.0), (2.0, 5.0)), near((3.0, 3.1), (4.1, 4.2)), near((3.1, 4.1), (6, 7))
    assert seen == [*negotiation, *copies, *reduce]
    assert [text.get_text() for text in below.texts] == ["2", "1"]
    assert below.get_title(loc="left").startswith("3 tensors in 2 all-reduces")


def test_kinds_differ_in_grey_too():
    faces = horovod_timeline.FACES
    assert len({(to_hex(face["facecolor"]), face.get("hatch")) for face in faces.values()}) == 3
    # ITU-R BT.601: what a grey printer makes of a colour.
    greys = []
    for face in faces.values():
        red, green, blue = (int(to_hex(face["facecolor"])[at : at + 2], 16) for at in (1, 3, 5))
        greys.append((0.299 * red + 0.587 * green + 0.114 * blue, bool(face.get("hatch"))))
    assert all(abs(a - b) > 60 or x != y for n, (a, x) in enumerate(greys) for b, y in greys[n + 1 :])


def test_negotiations_at_the_same_time_lie_side_by_side():
    made = Timeline()
    made.negotiate("allreduce.a", {0: 0.0, 1: 4.0})
    made.negotiate("allreduce.b", {0: 1.0, 1: 5.0})
    made.reduce(["allreduce.a"], 6.0)
    made.reduce(["allreduce.b"], 8.0)
    _, below = horovod_timeline.picture(trips(made)).axes
    one, other = (collection.get_paths()[0].vertices[:, 1] for collection in below.collections[:2])
    assert one.max() <= other.min() + 1e-9
    assert horovod_timeline.milliseconds(trips(made), "negotiation") == 5.0


def test_the_words_say_the_same():
    made = Timeline()
    step(made, 50.0)
    alt = horovod_timeline.picture(trips(made)).alt
    assert "2 tensors, 1.12 KB, ready at rank 0 2.0, rank 1 1.0 ms, all-reduce from 3.1 to 4.1 ms" in alt
    assert "1 tensor, 576 B, ready at rank 0 2.0, rank 1 5.0 ms, all-reduce from 6.0 to 7.0 ms" in alt
    assert "negotiation 5 ms, copies 0.2 ms, all-reduce 2 ms" in alt


def test_many_tensors_need_no_names_and_no_negotiation():
    made = Timeline()
    made.reduce([f"allreduce.{number}" for number in range(64)], 0.0)
    top, below = horovod_timeline.picture(trips(made)).axes
    assert not top.get_yticklabels() and top.get_ylabel() == "64 tensors"
    assert [text.get_text() for text in below.texts] == ["64"]
    assert top.get_title(loc="left").startswith("When rank 0 heard that any rank is ready")
    with pytest.raises(ValueError, match="no trips to draw"):
        horovod_timeline.picture([])


def test_numbers_stand_only_where_they_fit():
    made = Timeline()
    for number in range(64):
        made.reduce([f"allreduce.{number}"], 1.1 * number)
    figure = horovod_timeline.picture(trips(made))
    # Only the last has room, beside it.
    assert [text.get_text() for text in figure.axes[1].texts] == ["1"]
    assert figure.alt.count("1 tensor,") == 8 and "and 56 all-reduces more" in figure.alt


# -- fusion --------------------------------------------------------------------------------------


def setting(threshold: int, cycle: float, reduces: list[int], milliseconds: list[float]) -> dict:
    sizes = {"threshold_bytes": threshold, "cycle_ms": cycle, "tensors": 64, "bytes": 532480}
    each = {"reduces_each": reduces, "milliseconds_each": milliseconds}
    return sizes | {"reduces": reduces[1], "milliseconds": milliseconds[1]} | each


SETTINGS = [setting(0, 1, [64, 64, 64], [900, 1340, 1500]), setting(128 << 20, 2.5, [1, 2, 3], [50, 54.41, 60])]


def test_settings_have_bars_for_medians_and_rings_for_steps():
    figure = fusion.picture(SETTINGS)
    reduces, milliseconds = figure.axes
    assert [bar.get_width() for bar in reduces.patches] == [64, 2]
    assert [bar.get_width() for bar in milliseconds.patches] == [1340, 54.41]
    assert [list(line.get_xdata()) for line in milliseconds.lines] == [[900, 1340, 1500], [50, 54.41, 60]]
    names = ["no fusion, every 1 ms", "up to 128 MB, every 2.5 ms"]
    assert [label.get_text() for label in reduces.get_yticklabels()] == names
    assert [text.get_text() for text in milliseconds.texts] == ["1,340", "54.4"]
    assert f"{names[0]}: all-reduces 64, 1,340 ms; {names[1]}: all-reduces 2, 54.4 ms" in figure.alt
    assert [row["all-reduces"] for row in fusion.table(SETTINGS)] == [64, 2]
    with pytest.raises(ValueError, match="no 'fusion' records"):
        fusion.picture([])


# -- ways ----------------------------------------------------------------------------------------


def test_ways_lie_below_each_other_in_pieces_of_their_ranks():
    ends = {
        "DDP over gloo": [{"rank": 1, "images_per_second": 500.0}, {"rank": 0, "images_per_second": 700.0}],
        "Horovod over MPI": [{"rank": 0, "images_per_second": 300.0}, {"rank": 1, "images_per_second": 20.0}],
        "DDP on more": [{"rank": rank, "images_per_second": 100.0} for rank in range(3)],
    }
    figure = horovod_ways.picture(ends)
    (axes,) = figure.axes
    drawn = [(bar.get_x(), bar.get_width(), to_hex(bar.get_facecolor())) for bar in axes.patches]
    assert drawn[:4] == [(0, 700, RANKS[0]), (700, 500, RANKS[1]), (0, 300, RANKS[0]), (300, 20, RANKS[1])]
    assert drawn[4:] == [(100 * rank, 100, RANKS[rank]) for rank in range(3)]
    assert [text.get_text() for text in axes.texts][:5] == ["rank 0", "rank 1", "1,200", "rank 0", "320"]
    assert horovod_ways.totals(ends) == {"DDP over gloo": 1200, "Horovod over MPI": 320, "DDP on more": 300}
    assert "Horovod over MPI: 320 (rank 0 300, rank 1 20)" in figure.alt
    for nothing in ({}, {"DDP over gloo": []}):
        with pytest.raises(ValueError, match="no 'end' records"):
            horovod_ways.picture(nothing)
