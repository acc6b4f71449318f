"""Which stages a rank has, what they are made of, and which options are refused."""

import pytest
import torch
from distlab import models, process, stages


def options(*words):
    return stages.options().parse_args([str(word) for word in words])


def at(rank, world_size):
    return process.Rank(rank, world_size, rank, world_size, 0, "node1", "none", torch.device("cpu"), "gloo", "")


def plans(world_size, *words):
    return [stages.plan(options(*words), at(rank, world_size)) for rank in range(world_size)]


@pytest.mark.parametrize(
    ("schedule", "size", "own"),
    [
        ("gpipe", 2, [(0,), (1,)]),
        ("gpipe", 4, [(0,), (1,), (2,), (3,)]),
        ("1f1b", 2, [(0,), (1,)]),
        ("1f1b", 4, [(0,), (1,), (2,), (3,)]),
        ("interleaved", 2, [(0, 2), (1, 3)]),
        ("interleaved", 4, [(0, 4), (1, 5), (2, 6), (3, 7)]),
        ("zero-bubble", 2, [(0, 3), (1, 2)]),
        ("zero-bubble", 4, [(0, 7), (1, 6), (2, 5), (3, 4)]),
    ],
)
def test_each_stage_has_one_place(schedule, size, own):
    found = plans(size, "--schedule", schedule)
    assert [plan.own for plan in found] == own
    assert [plan.position for plan in found] == list(range(size))
    assert [plan.is_first for plan in found] == [True, *[False] * (size - 1)]
    assert [plan.is_last for plan in found].index(True) == (0 if schedule == "zero-bubble" else size - 1)
    assert sum(plan.is_last for plan in found) == 1
    for plan in found:
        assert len(plan.cut) == sum(map(len, own)) and sum(plan.cut) == 8
        for stage in plan.own:
            assert stages.rank_of(stage, schedule, size) == plan.position


@pytest.mark.parametrize(
    ("inside", "positions", "replicas"),
    [("replicas", [0, 0, 1, 1, 2, 2], [0, 1, 0, 1, 0, 1]), ("stages", [0, 1, 2, 0, 1, 2], [0, 0, 0, 1, 1, 1])],
)
def test_what_lies_next_to_each_other(inside, positions, replicas):
    found = plans(6, "--replicas", 2, "--inside", inside, "--schedule", "gpipe")
    assert [plan.position for plan in found] == positions
    assert [plan.replica for plan in found] == replicas
    assert [plan.own for plan in found] == [(position,) for position in positions]
    assert {(plan.ranks, plan.replicas, plan.inside, plan.cut) for plan in found} == {(3, 2, inside, (3, 3, 2))}


def test_a_cut_of_one_s_own():
    assert {plan.cut for plan in plans(4, "--cut", "1,3,3,1")} == {(1, 3, 3, 1)}
    assert plans(2, "--schedule", "interleaved", "--cut", "1,2,4,1")[1].cut == (1, 2, 4, 1)


def refusal(size, *words):
    """What all ranks say alike."""
    said = set()
    for rank in range(size):
        with pytest.raises(ValueError) as refused:
            stages.plan(options(*words), at(rank, size))
        said.add(str(refused.value))
    (only,) = said
    return only


@pytest.mark.parametrize(
    ("size", "words", "said"),
    [
        (4, "--replicas 3", "4 ranks cannot make 3 pipelines of the same length: use --replicas with a divisor of 4"),
        (2, "--replicas 4", "2 ranks cannot make 4 pipelines of the same length: use --replicas with a divisor of 2"),
        (
            4,
            "--batch-size 24 --microbatches 5",
            "a batch of 24 is not divisible by 5 microbatches: use one of 4, 6, 8, 12, 24",
        ),
        (
            4,
            "--batch-size 24 --microbatches 5 --schedule zero-bubble",
            "a batch of 24 is not divisible by 5 microbatches: use one of 1, 2, 3, 4, 6, 8, 12, 24",
        ),
        (
            4,
            "--microbatches 2",
            "1f1b needs a microbatch for each of its 4 stages, not 2: use one of 4, 8, 16, 32",
        ),
        (
            4,
            "--microbatches 2 --batch-size 2",
            "1f1b needs a microbatch for each of its 4 stages, not 2: use a multiple of 4 as --batch-size",
        ),
        (
            4,
            "--microbatches 6 --batch-size 36 --schedule interleaved",
            "interleaved goes round in turns of 4 ranks, and 6 microbatches are no multiple of that: "
            "use one of 4, 12, 36",
        ),
        (
            4,
            "--microbatches 5 --batch-size 10 --schedule interleaved",
            "interleaved goes round in turns of 4 ranks, and 5 microbatches are no multiple of that: "
            "use a multiple of 4 as --batch-size",
        ),
        (2, "--trace --tied", "tracing cannot cut a matrix that two stages share: leave out --trace or --tied"),
        (
            2,
            "--trace --schedule zero-bubble",
            "traced stages cannot turn round at the last rank as zero-bubble's do: leave out --trace",
        ),
        (
            4,
            "--layers 6 --schedule zero-bubble",
            "6 layers cannot be cut into 8 stages: use --layers 8 or more, or fewer ranks",
        ),
        (4, "--cut 4,4", "--cut 4,4 makes 2 stages, but there are 4: give 4 numbers"),
        (2, "--cut 4,4 --schedule interleaved", "--cut 4,4 makes 2 stages, but there are 4: give 4 numbers"),
        (4, "--cut 3,3,0,2", "--cut 3,3,0,2: stage 2 has no layer, give each 1 or more"),
        (4, "--cut 3,4,-1,2", "--cut 3,4,-1,2: stage 2 has no layer, give each 1 or more"),
        (4, "--cut 2,2,2,3", "--cut 2,2,2,3 shares out 9 layers, but the model has 8"),
    ],
)
def test_what_does_not_fit_is_one_sentence_on_every_rank(size, words, said):
    assert refusal(size, *words.split()) == said


@pytest.mark.parametrize("schedule", stages.SCHEDULES)
@pytest.mark.parametrize("size", [2, 3, 4])
def test_what_is_offered_is_taken(schedule, size):
    said = refusal(size, "--schedule", schedule, "--batch-size", 12, "--microbatches", 7)
    for number in said.rpartition("use one of ")[2].split(", "):
        plans(size, "--schedule", schedule, "--batch-size", 12, "--microbatches", number)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--cut", "2,two"), "argument --cut: '2,two' is not a list of whole numbers such as 2,2,2,2"),
        (("--schedule", "gpip"), "argument --schedule: invalid choice: 'gpip'"),
        (("--microbatches", "0"), "argument --microbatches: '0' is not a whole number of 1 or more"),
        (("--replicas", "0"), "argument --replicas: '0' is not a whole number of 1 or more"),
        (("--clip", "0"), "argument --clip: '0' is not a number above 0"),
        (("--heads", "0"), "argument --heads: '0' is not a whole number of 1 or more"),
        (("--generate", "-1"), "argument --generate: '-1' is not a whole number of 0 or more"),
    ],
)
def test_bad_values_are_refused_in_one_sentence(words, said, capsys, monkeypatch):
    monkeypatch.delenv("RANK", raising=False)
    with pytest.raises(SystemExit):
        options(*words)
    error = capsys.readouterr().err
    assert said in error and "Traceback" not in error


def model(**more):
    return models.LanguageModel(5, 8, 2, 6, **more)


@pytest.mark.parametrize("cut", [(5,), (2, 3), (1, 1, 3), (1, 1, 1, 1, 1)])
def test_stages_one_after_the_other_are_the_model(cut):
    whole = model()
    x = batch = torch.arange(12).reshape(2, 6)
    parts = [stages.stage_of(whole, cut, stage) for stage in range(len(cut))]
    for part in parts:
        x = part(x)
    assert torch.equal(x, whole(batch))
    names = [name for part in parts for name in part.state_dict()]
    assert sorted(names) == sorted(whole.state_dict())
    assert [len(part.blocks) for part in parts] == list(cut)


def test_a_cut_leaves_the_model_whole():
    whole = model()
    before = list(whole.state_dict())
    part = stages.stage_of(whole, (2, 3), 1)
    assert list(whole.state_dict()) == before
    assert part.head.weight is whole.head.weight


def test_two_stages_of_a_tied_model_hold_one_matrix():
    whole = model(tied=True)
    first, last = (stages.stage_of(whole, (2, 3), stage) for stage in (0, 1))
    assert first.token_embedding.weight is last.head.weight


def test_what_watches_one_stage_sees_no_other():
    whole, seen = model(), []
    parts = [stages.stage_of(whole, (2, 3), stage) for stage in (0, 1)]
    parts[1].register_forward_hook(lambda *_: seen.append(1))
    parts[0].eval()
    x = parts[0](torch.zeros(1, 6, dtype=torch.int64))
    whole(torch.zeros(1, 6, dtype=torch.int64))
    assert seen == [] and parts[1].training
    parts[1](x)
    assert seen == [1]
