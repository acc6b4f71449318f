"""What the experiments of a split model measure, against values worked out by hand."""

import time

import alone
import pytest
import torch
from distlab import checkpoint, models
from distlab.lessons.pipeline.experiments import split_memory, split_times
from distlab.scripts import compare_weights as split_weights
from torch.nn.functional import cross_entropy

CPU = torch.device("cpu")


@pytest.fixture
def reported(tmp_path):
    """The records of an experiment with the options given, run in this process."""
    return lambda experiment, *words: alone.report_of(experiment, tmp_path, *words)


# -- memory --------------------------------------------------------------------------------------

LAYERS, WIDTH, CONTEXT, HEADS = 3, 32, 16, 2
SIZE = ("--layers", LAYERS, "--width", WIDTH, "--context", CONTEXT, "--heads", HEADS)
# Each block: two norms, queries, keys and values, what follows attention, and the two layers of the network.
BLOCK = 4 * WIDTH + 3 * WIDTH**2 + (WIDTH**2 + WIDTH) + (4 * WIDTH**2 + 4 * WIDTH) + (4 * WIDTH**2 + WIDTH)
BEFORE, BEHIND = (256 + CONTEXT) * WIDTH, 2 * WIDTH + 256 * WIDTH


@pytest.fixture(scope="module")
def memory(tmp_path_factory):
    records = alone.report_of(split_memory, tmp_path_factory.mktemp("run"), *SIZE, "--batch-sizes", 4, 8)
    return {(record["batch_size"], record["stages"], record["stage"]): record for record in records}


def test_weights_and_what_goes_with_them_are_counted_where_they_are(memory):
    numbers = {(1, 0): BEFORE + 3 * BLOCK + BEHIND, (2, 0): BEFORE + 2 * BLOCK, (2, 1): BLOCK + BEHIND}
    tensors = {(1, 0): 2 + 3 * 11 + 3, (2, 0): 2 + 2 * 11, (2, 1): 11 + 3}
    for size in (4, 8):
        for place, number in numbers.items():
            found = memory[size, *place]["bytes"]
            assert found["parameters"] == found["gradients"] == 4 * number
            # Adam's two means of each number, and a count of updates for each tensor.
            assert found["optimizer"] == 2 * 4 * number + 4 * tensors[place]


def test_activations_grow_with_the_batch_and_stages_add_up(memory):
    def activations(*key):
        return memory[key]["bytes"]["activations"]

    for size in (4, 8):
        assert activations(size, 2, 0) + activations(size, 2, 1) == activations(size, 1, 0)
    # Nothing but the loss's sum of weights is there once for all samples.
    for place in ((1, 0), (2, 0), (2, 1)):
        assert activations(8, *place) == pytest.approx(2 * activations(4, *place), abs=16)


def test_activations_of_the_first_stage_are_those_of_its_blocks(memory):
    # Of each byte: what comes into both norms (two numbers more each) and out of them, queries, keys and values,
    # what attention makes (and a number per head), and the network's four-fold middle before and after GELU.
    floats = WIDTH * (2 + 2 + 3 + 1 + 8) + 4 + HEADS
    bytes_read = 8 * 4 * CONTEXT
    assert memory[4, 2, 0]["bytes"]["activations"] == 4 * floats * 4 * CONTEXT * 2 + bytes_read


def test_it_says_which_part_is_where(memory):
    assert (memory[4, 1, 0]["has"], memory[4, 1, 0]["blocks"]) == (
        ["token_embedding", "positional_embedding", "norm", "head"],
        [0, 1, 2],
    )
    assert (memory[4, 2, 0]["has"], memory[4, 2, 0]["blocks"]) == (["token_embedding", "positional_embedding"], [0, 1])
    assert (memory[4, 2, 1]["has"], memory[4, 2, 1]["blocks"]) == (["norm", "head"], [2])
    assert all(record["device"] == "cpu" and record["measured"] is None for record in memory.values())


# -- times ---------------------------------------------------------------------------------------


def timed():
    model = split_times.Timed(models.LanguageModel(4, 16, 2, 8), [CPU, CPU])
    text = torch.randint(256, (6, 9), generator=torch.Generator().manual_seed(0))
    return model, text[:, :-1], text[:, 1:]


def test_one_device_works_at_a_time():
    spans = split_times.plain_step(*timed())
    assert [(record["kind"], record["stage"]) for record in spans] == [
        ("forward", 0),
        ("forward", 1),
        ("backward", 1),
        ("backward", 0),
    ]
    assert [record["start"] for record in spans] == [0, *(record["end"] for record in spans[:-1])]
    assert all(record["end"] > record["start"] and record["microbatch"] == 0 for record in spans)


def test_when_stage_1_is_done_its_gradients_are_there_and_those_of_stage_0_are_not():
    model, batch, labels = timed()
    seen = {}

    def have(stage):
        return [parameter.grad is not None for parameter in model.stages[stage].parameters()]

    noted = model.until_now

    def until_now(kind, stage):
        seen[kind, stage] = have(0), have(1)
        noted(kind, stage)

    model.until_now = until_now
    split_times.plain_step(model, batch, labels)
    assert not any(seen["forward", 1][0] + seen["forward", 1][1])
    assert all(seen["backward", 1][1]) and not any(seen["backward", 1][0])
    assert all(seen["backward", 0][0])


def test_a_slow_backward_has_a_long_span():
    model, batch, labels = timed()
    done = []

    def wait(gradient):
        done.extend((record["kind"], record["stage"]) for record in model.spans)
        time.sleep(0.05)

    model.stages[0].blocks["0"].register_forward_hook(lambda *seen: seen[-1].register_hook(wait) and None)
    *_, last = split_times.plain_step(model, batch, labels)
    assert done == [("forward", 0), ("forward", 1), ("backward", 1)]
    assert last["end"] - last["start"] > 50


def test_a_timed_step_computes_what_an_untimed_one_does():
    model, batch, labels = timed()
    split_times.plain_step(model, batch, labels)
    alone = models.LanguageModel(4, 16, 2, 8)
    cross_entropy(alone(batch), labels).backward()
    for mine, other in zip(model.parameters(), alone.parameters(), strict=True):
        torch.testing.assert_close(mine.grad, other.grad)


def test_a_sweep_takes_the_same_step_in_pieces(reported):
    small = ("--layers", 2, "--width", 16, "--context", 8, "--heads", 2, "--batch-size", 6, "--rounds", 2)
    records = reported(split_times, *small, "--splits", 1, 3, 8)
    (work,) = [record for record in records if record["event"] == "work"]
    assert (work["schedule"], work["ranks"], work["stages"], work["microbatches"]) == ("naive", 2, 2, 1)
    assert len(work["spans"]) == 4 and work["devices"] == ["cpu", "cpu"]
    sweep = [record for record in records if record["event"] == "sweep"]
    assert [record["splits"] for record in sweep] == [1, 3, 8]
    for record in sweep:
        assert record["milliseconds"] > 0 and record["overlaps"] is False
        assert record["output_difference"] < 1e-5 and record["gradient_difference"] < 1e-5
    assert sweep[0]["gradient_difference"] == 0 < sweep[1]["gradient_difference"]


# -- weights -------------------------------------------------------------------------------------


def saved(path, **weights):
    torch.save(
        {"format": checkpoint.FORMAT, "model": {name: torch.tensor(values) for name, values in weights.items()}}, path
    )
    return path


def test_the_largest_difference_of_any_weight_is_reported(reported, tmp_path):
    first = saved(tmp_path / "first.pt", a=[1.0, -4.0], b=[[2.0]])
    (same,) = reported(split_weights, first, first)
    assert (same["apart"], same["largest"]) == (0.0, 4.0)
    other = saved(tmp_path / "other.pt", a=[1.5, -4.0], b=[[1.0]])
    assert reported(split_weights, first, other)[-1]["apart"] == 1.0


def test_weights_of_another_model_are_refused(reported, tmp_path):
    first, other = saved(tmp_path / "first.pt", a=[1.0]), saved(tmp_path / "other.pt", b=[1.0])
    with pytest.raises(checkpoint.CheckpointError, match="lacks 'a'"):
        reported(split_weights, first, other)
