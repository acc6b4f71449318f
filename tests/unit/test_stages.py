"""Pipelines on ranks against the same training in one process, number by number."""

import numpy as np
import pipeline_jobs as jobs
import pytest
import start_ranks
import torch
from distlab import checkpoint
from same_training import assert_same_records, assert_same_state

pytestmark = pytest.mark.timeout(150)

NAMES = {2: "two", 4: "four"}
TRAININGS = {2: jobs.ON_TWO, 4: jobs.ON_FOUR}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Where each group keeps its checkpoints, in a folder of its own."""
    return tmp_path_factory.mktemp("stages")


def start(ranks, job, folder, name):
    return start_ranks.run(ranks, job, folder / name, folder=folder / f"run of {name}")


@pytest.fixture(scope="module")
def one(folder):
    return start(1, jobs.twins, folder, "one")[0]


@pytest.fixture(scope="module")
def two(folder, one):
    return start(2, jobs.two_ranks, folder, "two")


@pytest.fixture(scope="module")
def four(folder, two):
    return start(4, jobs.four_ranks, folder, "four")


@pytest.fixture(scope="module")
def two_again(folder, four):
    return start(2, jobs.two_ranks_after_four, folder, "two-again")


@pytest.fixture(scope="module")
def one_again(folder, four):
    return start(1, jobs.one_after_others, folder, "one-again")[0]


@pytest.fixture
def ranks(request):
    return lambda size: request.getfixturevalue(NAMES[size])


CASES = [(size, name, twin) for size, cases in TRAININGS.items() for name, (twin, _) in cases.items()]


@pytest.mark.parametrize(("size", "name", "twin"), CASES, ids=[f"{name} on {size}" for size, name, _ in CASES])
def test_a_pipeline_learns_what_one_process_learns(folder, one, ranks, size, name, twin):
    found = ranks(size)
    for rank in found:
        assert_same_records(rank[name]["records"], one[twin]["records"])
    assert_same_state(jobs.file_of(folder / NAMES[size], name), jobs.file_of(folder / "one", twin))
    assert one[twin]["records"][1]["loss"] < one[twin]["records"][0]["loss"] - 0.1


@pytest.mark.parametrize("size", [2, 4])
def test_a_checkpoint_is_what_each_rank_has_of_the_model(folder, ranks, size):
    for name in TRAININGS[size]:
        whole = checkpoint.read(jobs.file_of(folder / NAMES[size], name))["model"]
        found = [rank[name]["own"] for rank in ranks(size)]
        for own in found:
            assert 0 < len(own) < len(whole)
            for key, value in own.items():
                # Replicas of a stage, and both ends of a tied model, too.
                np.testing.assert_array_equal(value, whole[key], err_msg=f"{key} of {name}")
        assert set().union(*found) == set(whole)


def test_both_ends_of_a_tied_model_stay_the_same_matrix(folder, one, two, four):
    for name in ("one/tied", "two/gpipe-tied", "two/zero-bubble-tied", "four/1f1b-tied", "four/stages-inside-tied"):
        weights = checkpoint.read(folder / f"{name}.pt")["model"]
        assert torch.equal(weights["token_embedding.weight"], weights["head.weight"]), name


@pytest.mark.parametrize(
    ("size", "name"),
    [(size, name) for size, name, _ in CASES if "clipped" in name],
)
def test_the_norm_of_all_stages_is_that_of_the_whole_model(one, ranks, size, name):
    twin = TRAININGS[size][name][0]
    expected = one[twin]["norms"]
    assert len(expected) >= 4 and min(expected) > 2 * jobs.CLIP, "this case is about clipping"
    for rank in ranks(size):
        assert rank[name]["norms"] == pytest.approx(expected, rel=1e-4)


def test_what_stages_share_is_counted_once(folder, four):
    for name, pipelines in (("1f1b", 1), ("zero-bubble", 1), ("replicas inside", 2), ("stages inside", 2)):
        last = [rank[name]["records"][1] for rank in four]
        for record in last:
            mean = sum(record["images_per_second"] for record in last) / 4
            assert record["images_per_second_all"] == pytest.approx(pipelines * mean), name
            assert record["images"] == 32 / pipelines


def test_rank_0_says_what_is_trained(one, four):
    assert "32 sequences of 16 bytes\n4 ranks on 1 x 8 = 8 samples per update; 1 thread" in four[0]["1f1b"]["said"]
    assert "\n4 ranks on 2 x 8 = 16 samples per update" in four[0]["stages inside"]["said"]
    assert "\n4 ranks on 1 x 8 x 3 batches = 24 samples per update" in four[0]["accumulated"]["said"]
    assert "\n1 rank x 8 = 8 samples per update" in one["plain"]["said"]
    for said in (four[0]["1f1b"]["said"], one["plain"]["said"]):
        assert said.count(" sequences/s\n") == 2 and "images" not in said
    assert [rank["1f1b"]["said"] for rank in four[1:]] == [""] * 3


def test_every_rank_writes_the_text_that_one_process_writes(one, four):
    text = one["speaks"]["text"]
    assert text.startswith("def ") and len(text.encode()) >= 44
    assert [rank["speaks"]["text"] for rank in four] == [text] * 4
    assert four[0]["speaks"]["said"].endswith(f"{text}\n")
    # Each pipeline writes by itself, and two stages of a rank take turns.
    for name, (twin, _) in jobs.ON_FOUR.items():
        assert [rank[name]["text"] for rank in four] == [one[twin]["text"]] * 4, name


@pytest.mark.parametrize("case", ["plain after one", "tied after one", "plain after two", "tied after two"])
def test_four_stages_go_on_where_fewer_stopped(folder, one, four, case):
    twin = case.split()[0]
    for rank in four:
        assert_same_records(rank[case]["records"], one[twin]["records"])
    assert_same_state(jobs.file_of(folder / "four", case), jobs.file_of(folder / "one", twin))
    assert f"24 samples, written by {1 if 'one' in case else 2} rank" in four[0][case]["said"]


@pytest.mark.parametrize("case", ["plain after four", "tied after four"])
def test_two_stages_go_on_where_four_stopped(folder, one, two_again, case):
    twin = case.split()[0]
    for rank in two_again:
        assert_same_records(rank[case]["records"], one[twin]["records"])
    assert_same_state(jobs.file_of(folder / "two-again", case), jobs.file_of(folder / "one", twin))


@pytest.mark.parametrize("case", ["plain after two", "tied after two", "plain after four", "tied after four"])
def test_one_process_goes_on_where_stages_stopped(folder, one, one_again, case):
    twin = case.split()[0]
    assert_same_records(one_again[case]["records"], one[twin]["records"])
    assert_same_state(jobs.file_of(folder / "one-again", case), jobs.file_of(folder / "one", twin))


@pytest.mark.parametrize(
    ("case", "said"),
    [
        ("shallow", "it lacks 'blocks.7.attention_norm.weight' (its first key: 'token_embedding.weight')"),
        ("deep", "it has 'blocks.8.attention_norm.weight', which this model lacks"),
        ("short", "'positional_embedding.weight' has shape (8, 16), this model wants (16, 16)"),
    ],
)
def test_a_checkpoint_of_another_model_is_the_same_error_on_every_rank(four, case, said):
    for rank in four:
        assert rank["refused"][case].startswith("CheckpointError: ")
        assert f"{case}.pt: the checkpoint is of another model: {said}" in rank["refused"][case]


@pytest.mark.parametrize("case", ["tied into untied", "untied into tied"])
def test_a_head_of_its_own_and_a_tied_one_do_not_fit(four, case):
    for rank in four:
        assert "the checkpoint's optimizer does not fit this one" in rank["refused"][case]


def test_a_smaller_batch_is_refused_on_every_rank(four):
    for number, rank in enumerate(four):
        assert rank["refused"]["smaller batch"].startswith(f"SettingError: rank {number} on ")
        assert "a batch of 8 samples in a pipeline that was made for 16: " in rank["refused"]["smaller batch"]
