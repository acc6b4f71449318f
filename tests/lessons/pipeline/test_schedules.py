"""The simulator of schedules: its orders against hand-written ones and torch's, its times against the formula."""

from types import SimpleNamespace

import pytest
from distlab.lessons.pipeline import schedules
from distlab.lessons.pipeline.orders import STAGES_PER_RANK, Work, order

LETTERS = {"forward": "F", "backward": "B", "backward input": "I", "backward weights": "W"}
ALL = sorted(STAGES_PER_RANK)
SIZES = [(p, m) for p in (2, 4) for m in (1, 2, 4, 8, 16)]


def allowed(schedule: str, ranks: int, microbatches: int) -> bool:
    fits = {"1f1b": microbatches >= ranks, "interleaved": microbatches % ranks == 0}
    return fits.get(schedule, True)


CASES = [(name, p, m) for name in ALL for p, m in [*SIZES, (1, 2), (3, 6), (3, 9)] if allowed(name, p, m)]


def words(own: list[Work]) -> str:
    return " ".join(f"{work.stage}{LETTERS[work.kind]}{work.microbatch}" for work in own)


# -- orders --------------------------------------------------------------------------------------

BY_HAND = {
    ("gpipe", 2, 4): ["0F0 0F1 0F2 0F3 0B0 0B1 0B2 0B3", "1F0 1F1 1F2 1F3 1B0 1B1 1B2 1B3"],
    ("gpipe", 4, 4): [" ".join([f"{r}F{i}" for i in range(4)] + [f"{r}B{i}" for i in range(4)]) for r in range(4)],
    ("1f1b", 2, 4): ["0F0 0F1 0B0 0F2 0B1 0F3 0B2 0B3", "1F0 1B0 1F1 1B1 1F2 1B2 1F3 1B3"],
    ("1f1b", 4, 4): [
        "0F0 0F1 0F2 0F3 0B0 0B1 0B2 0B3",
        "1F0 1F1 1F2 1B0 1F3 1B1 1B2 1B3",
        "2F0 2F1 2B0 2F2 2B1 2F3 2B2 2B3",
        "3F0 3B0 3F1 3B1 3F2 3B2 3F3 3B3",
    ],
    ("interleaved", 2, 4): [
        "0F0 0F1 2F0 2F1 0F2 2B0 0F3 2B1 2F2 0B0 2F3 0B1 2B2 2B3 0B2 0B3",
        "1F0 1F1 3F0 3B0 3F1 3B1 1F2 1B0 1F3 1B1 3F2 3B2 3F3 3B3 1B2 1B3",
    ],
    ("interleaved", 4, 4): [
        "0F0 0F1 0F2 0F3 4F0 4F1 4F2 4F3 4B0 4B1 4B2 4B3 0B0 0B1 0B2 0B3",
        "1F0 1F1 1F2 1F3 5F0 5F1 5F2 5F3 5B0 5B1 5B2 5B3 1B0 1B1 1B2 1B3",
        "2F0 2F1 2F2 2F3 6F0 6F1 6F2 6B0 6F3 6B1 6B2 6B3 2B0 2B1 2B2 2B3",
        "3F0 3F1 3F2 3F3 7F0 7B0 7F1 7B1 7F2 7B2 7F3 7B3 3B0 3B1 3B2 3B3",
    ],
    ("zero-bubble", 2, 4): [
        "0F0 0F1 0F2 3F0 3I0 3W0 3F1 3I1 3W1 0F3 0I0 0W0 3F2 3I2 3W2 0I1 0W1 3F3 3I3 3W3 0I2 0W2 0I3 0W3",
        "1F0 2F0 1F1 2F1 2I0 2W0 1F2 1I0 1W0 2F2 2I1 2W1 1F3 1I1 1W1 2F3 2I2 2W2 1I2 2I3 1I3 1W2 2W3 1W3",
    ],
    # Seven microbatches fill the V of four ranks: of seven, the first four.
    ("zero-bubble", 4, 4): [
        "0F0 0F1 0F2 0F3 7F0 7I0 7W0 7F1 7I1 7W1 7F2 7I2 7W2 7F3 7I3 7W3 0I0 0W0 0I1 0W1 0I2 0W2 0I3 0W3",
        "1F0 1F1 1F2 1F3 6F0 6F1 6I0 6W0 6F2 6I1 6W1 6F3 6I2 6W2 1I0 1W0 6I3 6W3 1I1 1W1 1I2 1W2 1I3 1W3",
        "2F0 2F1 2F2 5F0 2F3 5F1 5F2 5I0 5W0 5F3 5I1 5W1 2I0 2W0 5I2 5W2 2I1 2W1 5I3 5W3 2I2 2W2 2I3 2W3",
        "3F0 4F0 3F1 4F1 3F2 4F2 3F3 4F3 4I0 4W0 3I0 3W0 4I1 4W1 3I1 3W1 4I2 4W2 3I2 3W2 4I3 4W3 3I3 3W3",
    ],
}


@pytest.mark.parametrize("case", BY_HAND, ids=str)
def test_each_rank_works_in_the_order_written_by_hand(case):
    assert [words(own) for own in order(*case)] == BY_HAND[case]


def as_run_by_torch(kind: type, rank: int, ranks: int, microbatches: int) -> str:
    """What torch really calls of a stage; its _get_pipeline_order of 1F1B counts from 1 on the last rank."""
    done: list[str] = []
    messages = {f"get_{way}_{what}_ops": lambda _: [] for way in ("fwd", "bwd") for what in ("recv", "send")}
    stage = SimpleNamespace(
        forward_one_chunk=lambda number, *_, **__: done.append(f"{rank}F{number}"),
        backward_one_chunk=lambda number, *_, **__: done.append(f"{rank}B{number}"),
        perform_reduce_grad=lambda _: None,
        stage_index=rank,
        num_stages=ranks,
        is_last=False,
        is_first=rank == 0,
        has_backward=True,
        **messages,
    )
    run = kind(stage, microbatches)
    run._initialize_stage = lambda *_: None
    run._step_microbatches([()] * microbatches)
    return " ".join(done)


@pytest.mark.parametrize("case", CASES, ids=str)
def test_the_order_is_torchs(case):
    from torch.distributed.pipelining import schedules as theirs

    name, ranks, microbatches = case
    ours = [words(own) for own in order(*case)]
    if name in ("gpipe", "1f1b"):
        kind = theirs.ScheduleGPipe if name == "gpipe" else theirs.Schedule1F1B
        assert ours == [as_run_by_torch(kind, rank, ranks, microbatches) for rank in range(ranks)]
        return
    kind = theirs.ScheduleInterleaved1F1B if name == "interleaved" else theirs.ScheduleZBVZeroBubble
    stages = [SimpleNamespace(group_size=ranks, num_stages=2 * ranks, group_rank=0, submod=None) for _ in range(2)]
    made = kind(stages, microbatches)
    assert ours == [" ".join(map(str, filter(None, made.pipeline_order[rank]))) for rank in range(ranks)]
    # What runs has messages between, and no whole backward in place of its halves.
    run = [
        [a for a in made.pipeline_order_with_comms[rank] if str(a.computation_type.value) in "FBIW"]
        for rank in made.pipeline_order
    ]
    assert ours == [" ".join(map(str, own)) for own in run]


@pytest.mark.parametrize(
    ("case", "words"),
    [
        (("pipedream", 2, 4), "no schedule 'pipedream': use one of gpipe, 1f1b, interleaved, zero-bubble"),
        (("gpipe", 0, 4), "0 ranks and 4 microbatches: a pipeline needs 1 or more"),
        (("zero-bubble", 2, 0), "2 ranks and 0 microbatches"),
        (("1f1b", 4, 2), "1f1b needs a microbatch for each of its 4 ranks, not 2"),
        (("interleaved", 4, 10), "10 microbatches are no multiple of that: use 8"),
        (("interleaved", 4, 2), "2 microbatches are no multiple of that: use 4"),
    ],
)
def test_what_a_schedule_does_not_allow_is_said(case, words):
    with pytest.raises(ValueError, match=words):
        order(*case)


# -- time ----------------------------------------------------------------------------------------


def spans(records: list[dict]) -> dict[tuple[str, int, int], tuple[int, float, float]]:
    """(letter, stage, microbatch) -> (rank, start, end)."""
    return {
        (LETTERS[span["kind"]], span["stage"], span["microbatch"]): (record["rank"], span["start"], span["end"])
        for record in records
        for span in record["spans"]
    }


@pytest.mark.parametrize("case", CASES, ids=str)
def test_every_stage_does_every_microbatch_once_and_none_before_its_time(case):
    name, ranks, microbatches = case
    records = schedules.simulate(*case, forward=1.5, backward=2.0, message=0.25)
    stages, done = records[0]["stages"], spans(records)
    halves = "IW" if name == "zero-bubble" else "B"
    everything = {(kind, s, i) for kind in "F" + halves for s in range(stages) for i in range(microbatches)}
    assert set(done) == everything
    assert sum(len(record["spans"]) for record in records) == len(everything)
    gradient = halves[0]
    for (kind, stage, microbatch), (rank, start, _) in done.items():
        before = {
            "F": [("F", stage - 1, microbatch)] if stage else [],
            gradient: [("F", stage, microbatch), (gradient, stage + 1, microbatch)][: 1 + (stage < stages - 1)],
            "W": [("I", stage, microbatch)],
        }[kind]
        for need in before:
            its_rank, _, end = done[need]
            assert start >= end + 0.25 * (its_rank != rank), f"{kind}{microbatch} of stage {stage} before {need}"
    for record in records:
        ends = [0.0, *(span["end"] for span in record["spans"])]
        assert all(end <= span["start"] for end, span in zip(ends, record["spans"], strict=False))


@pytest.mark.parametrize("case", [case for case in CASES if case[0] != "zero-bubble"], ids=str)
def test_the_bubble_is_the_formulas(case):
    name, ranks, microbatches = case
    expected = (ranks - 1) / (STAGES_PER_RANK[name] * microbatches + ranks - 1)
    assert schedules.formula(ranks, microbatches, STAGES_PER_RANK[name]) == pytest.approx(expected)
    assert schedules.bubble(schedules.simulate(*case, forward=1.0, backward=2.0)) == pytest.approx(expected)


def test_one_step_of_1f1b_by_hand():
    # Rank 1:       F0 B0 B0 F1 B1 B1          waits 1 for its first input
    # Rank 0: F0 F1       B0 B0       B1 B1
    done = spans(schedules.simulate("1f1b", 2, 2))
    assert done == {
        ("F", 0, 0): (0, 0, 1),
        ("F", 0, 1): (0, 1, 2),
        ("F", 1, 0): (1, 1, 2),
        ("B", 1, 0): (1, 2, 4),
        ("F", 1, 1): (1, 4, 5),
        ("B", 1, 1): (1, 5, 7),
        ("B", 0, 0): (0, 4, 6),
        ("B", 0, 1): (0, 7, 9),
    }


def test_the_turn_of_the_v_needs_no_message():
    done = spans(schedules.simulate("zero-bubble", 2, 1, forward=2.0, backward=4.0, message=10.0))
    starts = [done[key][1] for key in (("F", 0, 0), ("F", 1, 0), ("F", 2, 0), ("F", 3, 0), ("I", 3, 0), ("I", 2, 0))]
    assert starts == [0, 11, 12, 23, 24, 35]


def test_zero_bubble_has_a_bubble_below_the_others_and_none_in_the_steady_part():
    same = [schedules.bubble(schedules.simulate(name, 4, 8)) for name in ("1f1b", "interleaved", "zero-bubble")]
    assert same == sorted(same, reverse=True) and len(set(same)) == 3
    # With forward, input and weights as long as one another the V of 4 ranks idles as long for any number of pieces.
    idle = [
        12 * m * b / (1 - b) for m in (8, 16, 32) for b in [schedules.bubble(schedules.simulate("zero-bubble", 4, m))]
    ]
    assert idle == pytest.approx([idle[0]] * 3)


def test_costs_make_one_stage_slow():
    even = schedules.simulate("gpipe", 2, 4, costs=[2, 2])
    uneven = schedules.simulate("gpipe", 2, 4, costs=[1, 3])
    # Rank 1 waits a forward of rank 0, then works without a gap: (1 + 2) x 3 x 4; then rank 0's last backward.
    assert max(end for _, _, end in spans(uneven).values()) == 1 + 3 * 3 * 4 + 2
    assert max(end for _, _, end in spans(even).values()) == 2 + 2 * 3 * 4 + 4
    with pytest.raises(ValueError, match="interleaved on 2 ranks has 4 stages, not 2: give a cost for each"):
        schedules.simulate("interleaved", 2, 4, costs=[1, 1])


# -- what is counted -----------------------------------------------------------------------------


def measured(rank: int, *rows: tuple[str, int, float, float], ranks: int = 2) -> dict:
    whole = {"rank": rank, "host": "node1", "schedule": "gpipe", "ranks": ranks, "stages": 2, "microbatches": 2}
    keys = ("kind", "microbatch", "start", "end")
    return whole | {"spans": [dict(zip(keys, row, strict=True)) | {"stage": rank} for row in rows]}


STEP = [
    measured(
        1, ("forward", 0, 3.0, 5.0), ("forward", 1, 5.0, 7.0), ("backward", 0, 8.0, 9.0), ("backward", 1, 9.0, 11.0)
    ),
    measured(
        0, ("forward", 0, 1.0, 3.0), ("forward", 1, 3.0, 5.0), ("backward", 0, 9.0, 10.0), ("backward", 1, 11.0, 13.0)
    ),
]


def test_bubble_of_measured_records_counts_from_the_first_start():
    assert schedules.bubble(STEP) == pytest.approx(1 - (7 + 7) / (2 * 12))


def test_the_ideal_of_measured_records_has_their_work_and_no_waiting():
    ideal = schedules.ideal(STEP)
    assert ideal[0]["unit"] == "milliseconds" and ideal[0]["schedule"] == "gpipe"
    # A forward takes 2 on average, a backward 1.5.
    assert max(end for _, _, end in spans(ideal).values()) == pytest.approx(3 * 3.5)
    assert schedules.bubble(ideal) == pytest.approx(schedules.formula(2, 2))


@pytest.mark.parametrize(
    ("records", "words"),
    [
        ([], "no 'work' records to draw"),
        ([*STEP, STEP[0]], "2 records of rank 1: pass those of one step"),
        (STEP[:1], "ranks that reported: 1 of 2; pass all records of a step"),
    ],
)
@pytest.mark.parametrize("count", [schedules.bubble, schedules.in_flight, schedules.ideal])
def test_records_that_are_not_of_one_step_are_refused(count, records, words):
    with pytest.raises(ValueError, match=words):
        count(records)


@pytest.mark.parametrize(
    ("case", "most"),
    [
        (("gpipe", 4, 8), [8, 8, 8, 8]),
        (("1f1b", 4, 8), [4, 3, 2, 1]),
        # Half as large each: a rank has two stages.
        (("interleaved", 4, 8), [11, 9, 7, 5]),
        (("zero-bubble", 4, 8), [8, 8, 8, 8]),
    ],
)
def test_microbatches_in_flight(case, most):
    assert schedules.in_flight(schedules.simulate(*case)) == dict(enumerate(most))
    assert list(schedules.in_flight(STEP).values()) == [2, 2]


def test_the_devices_of_one_process_are_lanes_like_ranks():
    spans = [
        {"kind": "forward", "stage": 0, "microbatch": 0, "start": 0.0, "end": 1.0},
        {"kind": "forward", "stage": 1, "microbatch": 0, "start": 1.0, "end": 2.0},
        {"kind": "backward", "stage": 1, "microbatch": 0, "start": 2.0, "end": 4.0},
        {"kind": "backward", "stage": 0, "microbatch": 0, "start": 4.0, "end": 6.0},
    ]
    work = {"event": "work", "rank": 0, "schedule": "naive", "ranks": 2, "stages": 2, "microbatches": 1}
    lanes = schedules.by_device(work | {"spans": spans})
    assert [lane["rank"] for lane in lanes] == [0, 1]
    assert [span["start"] for span in lanes[0]["spans"]] == [0.0, 4.0]
    assert schedules.bubble(lanes) == pytest.approx(0.5)


def test_any_order_can_be_followed_and_stays_as_it_is():
    todo = order("1f1b", 2, 4)
    spans = schedules.follow(todo, [1.0, 1.0], forward=1.0, backward=2.0)
    assert spans == [record["spans"] for record in schedules.simulate("1f1b", 2, 4)]
    assert todo == order("1f1b", 2, 4)


def test_ranks_that_wait_for_each_other_are_told():
    # The first stage begins with a backward, for which the second would have to be done.
    todo = [[Work("backward", 0, 0), Work("forward", 0, 0)], [Work("forward", 1, 0), Work("backward", 1, 0)]]
    with pytest.raises(RuntimeError, match="every rank waits for another"):
        schedules.follow(todo, [1.0, 1.0])
