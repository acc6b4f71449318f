"""scripts/horovod_ddp.py trains what ddp.py and one process train, on two simulated hosts."""

import needs
import numpy as np
import pytest
from distlab import checkpoint
from distlab.runs import WORKSPACE

pytestmark = pytest.mark.timeout(150)

SCRIPTS = WORKSPACE / "distlab" / "scripts"
# A warm-up would begin at other rates in one process.
WORDS = ("--limit", "1024", "--model", "mlp", "--batch-size", "32", "--warmup-epochs", "0", "--no-lr-scaling")
START = 80


@pytest.fixture(autouse=True)
def _horovod():
    needs.horovod()


@pytest.fixture(scope="module")
def trained() -> dict:
    """What was trained already, by what was asked for: several tests compare with the same training."""
    return {}


@pytest.fixture
def train(warm, trained):
    """Trains and gives back the records of rank 0's epochs and the weights that were saved."""

    def run(script, *words, launcher="horovodrun", hosts="node1:2,node2:2"):
        asked = (script, words, launcher, hosts)
        if asked not in trained:
            result = warm(SCRIPTS / f"{script}.py", *WORDS, *words, launcher=launcher, hosts=hosts, timeout=START)
            saved = checkpoint.read(result.last("end")[0]["checkpoint"])
            trained[asked] = [epoch for epoch in result.records("epoch") if epoch["rank"] == 0], saved, result
        return trained[asked]

    return run


def apart(one: dict, other: dict) -> float:
    """Largest difference between the weights of two checkpoints."""
    assert set(one["model"]) == set(other["model"])
    return max(
        float(np.abs(value.numpy() - other["model"][name].numpy()).max()) for name, value in one["model"].items()
    )


@pytest.mark.parametrize("launcher", ["horovodrun", "horovodrun-mpi", "mpirun"])
def test_the_same_weights_as_ddp(train, launcher):
    mine, weights, result = train("horovod_ddp", "--epochs", "2", launcher=launcher)
    theirs, ddp, _ = train("ddp", "--epochs", "2", launcher="torchrun")
    assert len(mine) == len(theirs) == 2
    for one, other in zip(mine, theirs, strict=True):
        for name in ("steps", "lr", "val_images"):
            assert one[name] == other[name], name
        for name in ("loss", "accuracy", "val_loss", "val_accuracy"):
            assert one[name] == pytest.approx(other[name], abs=1e-4), name
    assert apart(weights, ddp) < 1e-4
    assert {record["device"] for record in result.records("setup")} <= {"cpu", "cuda:0", "cuda:1"}
    assert [record["own_samples"] for record in result.records("setup")] == [256] * 4


def test_the_same_weights_as_one_process(train):
    _, weights, _ = train("horovod_ddp", "--accumulate", "2")
    _, alone, _ = train("single", "--batch-size", "256", launcher="torchrun", hosts="node1:1")
    assert apart(weights, alone) < 1e-4


def test_the_learning_rate_is_scaled_by_all_ranks_and_batches(warm):
    words = ("--limit", "512", "--model", "mlp", "--lr", "0.01", "--accumulate", "2", "--warmup-epochs", "0")
    result = warm(SCRIPTS / "horovod_ddp.py", *words, launcher="horovodrun", timeout=START)
    assert {round(record["lr"], 6) for record in result.records("epoch")} == {0.08}


def test_gradients_that_travel_in_sixteen_bits_are_close_and_not_the_same(train):
    _, exact, _ = train("horovod_ddp")
    _, rounded, _ = train("horovod_ddp", "--compress", "fp16")
    assert 0 < apart(exact, rounded) < 1e-2


def test_mixed_precision_synchronizes_before_it_unscales(train):
    """An overflow on one rank is a skip on all, and the next update is not disturbed."""
    plain, _, _ = train("horovod_ddp", "--clip", "1")
    mixed, _, result = train("horovod_ddp", "--clip", "1", "--amp", "fp16", "--accumulate", "2")
    assert mixed[0]["loss"] < 2.31 and plain[0]["loss"] < 2.31
    scales = [[record["after"] for record in result.records("scale") if record["rank"] == rank] for rank in range(4)]
    assert all(scale == scales[0] for scale in scales)


def test_adasum_learns_over_mpi_and_is_refused_over_gloo(train, warm):
    epochs, _, _ = train("horovod_ddp", "--combine", "adasum", launcher="horovodrun-mpi")
    assert epochs[0]["loss"] < 2.31
    words = (*WORDS, "--combine", "adasum")
    failure = warm.fails(SCRIPTS / "horovod_ddp.py", *words, "--clip", "1", launcher="mpirun", timeout=START)
    assert "raised ValueError: --combine adasum combines updates and no gradients" in failure.message
    failure = warm.fails(SCRIPTS / "horovod_ddp.py", *words, launcher="horovodrun", timeout=START)
    assert "raised RuntimeError: --combine adasum needs MPI: use --launcher horovodrun-mpi or mpirun" in failure.message


def test_a_resumed_run_ends_as_one_that_was_never_stopped(train, tmp_path):
    kept = str(tmp_path / "half.pt")
    _, whole, _ = train("horovod_ddp", "--epochs", "2")
    train("horovod_ddp", "--epochs", "1", "--checkpoint", kept)
    epochs, resumed, _ = train("horovod_ddp", "--epochs", "2", "--checkpoint", kept, "--resume")
    assert [record["epoch"] for record in epochs] == [2]
    assert apart(whole, resumed) < 1e-4
    # Momentum is part of it: without, the second epoch would begin anew.
    assert set(resumed["optimizer"]["state"]) and resumed["epoch"] == 2
