"""data_parallel.py and its experiments, beside one device that does the same."""

import difflib
import os
import re
from pathlib import Path

import distlab
import numpy as np
import pytest
import start_ranks
import training_jobs as jobs
from distlab import data, process, replicas, report
from distlab.lessons.data_parallel.experiments import errors as dp_mistakes
from distlab.lessons.data_parallel.experiments import memory as dp_memory
from distlab.lessons.data_parallel.experiments import parts as dp_parts
from distlab.lessons.data_parallel.experiments import prefix as dp_prefix
from distlab.lessons.data_parallel.experiments import replicas as dp_replicas
from distlab.lessons.data_parallel.experiments import speed as dp_speed
from distlab.lessons.data_parallel.experiments import step as dp_step
from distlab.lessons.data_parallel.experiments import threads as dp_threads
from distlab.scripts import data_parallel, single

SCRIPTS = Path(distlab.__file__).parent / "scripts"


@pytest.fixture(scope="module")
def root(tmp_path_factory):
    root = tmp_path_factory.mktemp("data")
    data.prepare("digits", root=root)
    return root


def work(script, *words):
    import contextlib
    import io
    import sys

    with contextlib.redirect_stdout(io.StringIO()) as said:
        sys.argv = ["experiment", *map(str, words)]
        script.main() if ".experiments." in script.__name__ else script.main(list(map(str, words)))
    return said.getvalue()


def alone(script, folder, *words, **variables):
    """What one process that runs a script says, and what it reports."""
    (said,) = start_ranks.run(1, _by_name, script.__name__, *words, folder=folder, **variables)
    return said, report.read(folder)


def _by_name(name, *words):
    import importlib

    return work(importlib.import_module(name), *words)


@pytest.fixture(scope="module")
def trained(root, tmp_path_factory):
    words = ("--data", "digits", "--data-root", root, "--limit", 200, "--batch-size", 32, "--epochs", 2)
    found = {}
    for script in (single, data_parallel):
        folder = tmp_path_factory.mktemp(script.__name__.rpartition(".")[2])
        said, records = alone(script, folder, *words, OMP_NUM_THREADS="3")
        found[script] = {"said": said, "records": records, "weights": jobs.read_weights(folder / "checkpoint.pt")}
    return found


def events(run, name):
    return [record for record in run["records"] if record["event"] == name]


def test_it_trains_as_one_device_does(trained):
    np.testing.assert_allclose(trained[data_parallel]["weights"], trained[single]["weights"], atol=1e-5)
    for ours, expected in zip(*(events(trained[script], "epoch") for script in (data_parallel, single)), strict=True):
        for key in ("loss", "accuracy", "val_loss", "val_accuracy", "val_images", "lr", "steps", "images"):
            assert ours[key] == pytest.approx(expected[key], abs=1e-5), key
    assert events(trained[single], "epoch")[1]["loss"] < events(trained[single], "epoch")[0]["loss"]


def test_it_is_one_rank_and_the_batch_is_the_whole_batch(trained):
    (ours,), (expected,) = (events(trained[script], "setup") for script in (data_parallel, single))
    same = set(ours) - {"time"}
    assert {key: ours[key] for key in same} == {key: expected[key] for key in same}
    assert (ours["world_size"], ours["samples_per_update"], ours["own_samples"]) == (1, 32, 200)
    (end,) = events(trained[data_parallel], "end")
    assert end["images"] == 400
    for record in events(trained[data_parallel], "epoch"):
        assert record["images_per_second"] == record["images_per_second_all"]
        assert record["images"] == 200


def test_it_says_what_stands_in(trained):
    assert "no two GPUs here: 3 replicas on the CPU stand in\n" in trained[data_parallel]["said"]
    assert "1 rank x 32 = 32 samples per update" in trained[data_parallel]["said"]
    assert "stand in" not in trained[single]["said"]


def test_the_diff_is_one_line_and_an_import():
    before, after = ((SCRIPTS / f"{name}.py").read_text().splitlines() for name in ("single", "data_parallel"))
    changes = [line for line in difflib.ndiff(before, after) if line[0] == "+"]
    code = [line for line in changes if re.search(r"import|=", line)]
    assert len(changes) <= 4
    assert code == [
        "+ from distlab import data, loop, models, process, replicas",
        "+         model = replicas.data_parallel(model, me)",
    ]


def test_two_gpus_and_one_are_said_aloud(monkeypatch, capsys):
    import torch
    from torch import nn

    me = process.Rank(0, 1, 0, 1, 0, "node1", "none", torch.device("cuda", 0), None, "")
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 1)
    assert isinstance(replicas.data_parallel(nn.ReLU(), me), replicas.StandIn)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    monkeypatch.setattr(nn, "DataParallel", lambda model, devices: model)
    replicas.data_parallel(nn.ReLU(), me)
    assert capsys.readouterr().out.splitlines() == [
        "no two GPUs here: 2 replicas on the only GPU stand in",
        "2 replicas, on cuda:0, cuda:1",
    ]


# -- experiments --------------------------------------------------------------------------------


def test_a_step_is_reported_as_it_was(tmp_path):
    _, records = alone(dp_step, tmp_path)
    assert [record["batch"] for record in records] == [10, 6, 2]
    assert [[len(piece) for piece in record["samples"]] for record in records] == [[3, 3, 3, 1], [2, 2, 2], [1, 1]]
    for record in records:
        assert sum(record["samples"], []) == list(range(record["batch"]))
        assert record["output_difference"] < 1e-12 and record["gradient_difference"] < 1e-12
        assert sum(record["gradients"]) == pytest.approx(record["gradient"], abs=1e-12)
        assert len(set(record["gradients"])) == len(record["samples"])
        # 20 x 16 + 16 and 16 x 4 + 4 numbers of 8 bytes.
        assert set(record["weight_bytes"]) == {8 * (336 + 68)}


def test_what_replicas_write_down_is_lost(tmp_path):
    _, records = alone(dp_replicas, tmp_path, "--steps", 2, "--batch-size", 30)
    plain, spread = (record for record in records if record["event"] == "kept")
    assert [plain[key] for key in ("forwards", "calls", "replaced", "added_to")] == [2, 2, 60, 60]
    assert [spread[key] for key in ("forwards", "calls", "replaced", "added_to")] == [8, 0, 0, 16]
    assert spread["weights_current"] and spread["calls_at_start"] == [0]
    (normalised,) = (record for record in records if record["event"] == "normalised")
    assert normalised["difference"] > 0.01
    assert normalised["to_first_piece"] < 1e-6 < normalised["to_whole"]


def test_the_parts_of_a_step_add_up_to_it(tmp_path):
    _, records = alone(dp_parts, tmp_path, "--steps", 2, "--models", "mlp", OMP_NUM_THREADS="2")
    single, spread = records
    assert (single["replicas"], spread["replicas"]) == (0, 2)
    assert set(spread["milliseconds"]) - set(single["milliseconds"]) == {"scatter", "replicate", "gather"}
    for record in records:
        parts = dict(record["milliseconds"])
        whole = parts.pop("whole")
        assert 0.5 * whole < sum(parts.values()) <= whole


def test_memory_is_that_of_the_tensors(tmp_path):
    _, records = alone(dp_memory, tmp_path, "--batch-size", 8)
    weights = 4 * (784 * 256 + 256 + 256 * 256 + 256 + 256 * 10 + 10)
    first, *others = (record["bytes"] for record in records)
    assert len(others) == 3
    assert first["weights"] == first["gradients"] == first["optimizer"] == weights
    assert first["batch"] == 8 * 784 * 4 and first["gathered"] == 8 * 10 * 4
    for record in others:
        assert record["weights"] == record["gradients"] == weights
        assert record["optimizer"] == record["gathered"] == 0
        assert record["batch"] == 2 * 784 * 4
        # Two samples: two linear layers and two ReLUs of 256, one of 10.
        assert record["activations"] == 2 * 4 * (4 * 256 + 10)


def test_two_threads_take_turns_in_python(tmp_path):
    from distlab.lessons.data_parallel.pictures import threads as turns

    _, records = alone(dp_threads, tmp_path, "--seconds", 0.03)
    assert [record["kind"] for record in records] == ["Python", "small layers", "large layers"]
    python = records[0]
    assert turns.overlap(python["spans"]) < 0.5
    assert all(spans for spans in python["spans"])
    for record in records:
        ends = [end for lane in record["spans"] for _, end in lane]
        assert max(ends, default=0) <= 1000 * record["together"] + 1


def test_speeds_of_devices_and_replicas(tmp_path):
    _, records = alone(dp_speed, tmp_path, "--batch-size", 16, "--steps", 1, "--rounds", 2, OMP_NUM_THREADS="2")
    cases = [
        (record["kind"], record["devices"], record["threads"]) for record in records if record["net"] == "convolutions"
    ]
    assert cases == [("device", 1, 1), ("device", 1, 2), ("replicas", 2, 2), ("replicas", 4, 2)]
    assert len(records) == 8
    for record in records:
        assert all(len(rates) == 2 and min(rates) > 0 for rates in record["images_per_second"].values())


def test_speeds_of_ranks(tmp_path):
    words = ("--batch-size", 16, "--steps", 1, "--rounds", 1)
    start_ranks.run(2, _by_name, dp_speed.__name__, *words, folder=tmp_path)
    records = report.read(tmp_path)
    assert {(record["kind"], record["devices"], record["threads"]) for record in records} == {("ranks", 2, 2)}
    assert sorted({record["rank"] for record in records}) == [0, 1]


def test_a_checkpoint_goes_in_and_back(tmp_path):
    _, (state,) = alone(dp_prefix, tmp_path)
    assert state["keys"] == [f"module.{name}" for name in ("0.weight", "0.bias", "2.weight", "2.bias")]
    assert "Missing key(s)" in state["refused"] and "Missing key(s)" in state["wrapper_refused"]
    for key in ("refused_by_hand", "refused_by_us", "wrapper_refused_by_us"):
        assert state[key] is None
    for key in ("difference_by_hand", "difference_by_us", "difference_back"):
        assert state[key] < 1e-6


def test_mistakes_are_said_with_their_place(tmp_path):
    _, (where, who) = alone(dp_mistakes, tmp_path)
    assert where["type"] == "RuntimeError" and "found one of them on device: meta" in where["message"]
    assert who["type"] == "ValueError" and who["notes"] == ["in replica 2 of 4, on cpu"]
    assert "DISTLAB_RUN_DIR" not in os.environ
