"""What makes the exercise ddp right, in the order in which one would mend it."""

import itertools
import math

import pytest

from distlab.checks.engine import Job, needs
from distlab.checks.result import plural

# Sums of float32 in another order; a real mistake is a hundred times larger.
CLOSE = 1e-4


@pytest.fixture
def ranks(job: Job) -> list[dict]:
    """What each rank saw of its training."""
    return job.each("trained")


@pytest.fixture
def compared(job: Job) -> dict:
    """What rank 0 found when it held the ranks against each other and against one process."""
    return job.each("compared")[0]


def epoch_batches(record: dict, epoch: int) -> slice:
    """Which of a rank's batches belong to an epoch."""
    steps = len(record["batches"]) // record["epochs"]
    return slice(epoch * steps, (epoch + 1) * steps)


def seen(record: dict, epoch: int) -> list[int]:
    """Samples that a rank trained on in an epoch, in its order."""
    return [sample for batch in record["batches"][epoch_batches(record, epoch)] for sample in batch]


def off(difference: float | None) -> str:
    """A difference as text; None stands for one that is not finite."""
    return "without limit (they are no longer finite)" if difference is None else f"by up to {difference:.2g}"


def close(difference: float | None) -> bool:
    """True when a difference is only that of another order of adding."""
    return difference is not None and difference <= CLOSE


def test_runs(job: Job) -> None:
    """the file runs to its end on every rank"""
    assert job.trouble is None, job.trouble


@needs("runs")
def test_joins(ranks: list[dict]) -> None:
    """TODO 1: the ranks join one group"""
    assert all(record["batches"] for record in ranks), "the model was never called, so it was not trained"
    assert any(record["group"] for record in ranks), (
        f"the {len(ranks)} ranks never met and each trained a model of its own: start with TODO 1, "
        "dist.init_process_group() at the top of train"
    )
    for record in ranks:
        assert record["group"] == len(ranks), (
            f"rank {record['rank']} trained in a group of {record['group']}, but there are {len(ranks)} ranks: "
            "call dist.init_process_group() without rank and world_size, which the launcher has set"
        )


def test_device(job: Job) -> None:
    """TODO 2: each rank takes the GPU of its local rank"""
    records = job.each("device")
    if not records:
        pytest.skip("device_for was not reached")
    for choice in records[0]["choices"]:
        (rank, local_rank), gpus = choice["seat"], choice["gpus"]
        who = f"on a host with {gpus or 'no'} GPUs rank {rank}, whose local rank is {local_rank},"
        assert "error" not in choice, f"{who} got {choice['error']} from device_for"
        right = f"cuda:{local_rank}" if gpus else "cpu"
        assert choice["device"] == right, f"{who} chose {choice['device']}, but {right} is its own: " + (
            "a host counts its GPUs from 0, so choose by local_rank, not by rank" if gpus else "fall back to the cpu"
        )


@needs("joins")
def test_sampler(ranks: list[dict]) -> None:
    """TODO 3: in each epoch every sample is on one rank"""
    n, epochs = ranks[0]["samples"], ranks[0]["epochs"]
    for record in ranks:
        steps = len(record["batches"])
        assert steps % epochs == 0, (
            f"rank {record['rank']} took {steps} steps in {epochs} epochs: every epoch has the same number of steps"
        )
    share = [set(seen(record, 0)) for record in ranks]
    pairs = [(a, b, len(share[a] & share[b])) for a, b in itertools.combinations(range(len(ranks)), 2)]
    # The pair with most in common says most about what is wrong.
    a, b, common = max(pairs, key=lambda pair: pair[2])
    assert common < n, (
        f"rank {a} and rank {b} both saw all {n} samples in epoch 0: the loader has no DistributedSampler"
    )
    assert not common or share[a] != share[b], (
        f"rank {a} and rank {b} saw the same {common} samples in epoch 0: "
        "DistributedSampler needs the global rank, and asks the group when you give none"
    )
    assert not common, (
        f"rank {a} and rank {b} have {common} samples of epoch 0 in common: "
        "all ranks must shuffle with the same seed, each for its own share"
    )
    unseen = n - len(set().union(*share))
    # A loader may drop a last batch that is not full.
    assert unseen < len(ranks) * ranks[0]["batch_size"], (
        f"no rank saw {unseen} of the {n} samples in epoch 0: the shares of all ranks together must be the whole set"
    )


@needs("joins")
def test_wrap(ranks: list[dict], compared: dict) -> None:
    """TODO 4: gradients are averaged, and all ranks train as one process would"""
    wrapped = all(record["wrapped"] for record in ranks)
    why = (
        "the model was wrapped, but batches do not go through the wrapped one"
        if wrapped
        else "the model is not wrapped in DistributedDataParallel, so nobody averaged the gradients"
    )
    steps = len(ranks[0]["batches"])
    for rank, difference in enumerate(compared["to_rank_0"]):
        assert close(difference), (
            f"after {steps} steps the weights of rank 0 and rank {rank} differ {off(difference)}: {why}"
        )
    assert close(compared["to_twin"]), (
        f"after {steps} steps the weights differ {off(compared['to_twin'])} from those of one process that took "
        "the same batches: each step is one zero_grad, one backward and one optimizer.step, with lr as it is given"
    )


@needs("sampler")
def test_epochs(ranks: list[dict]) -> None:
    """TODO 5: every epoch has a new order"""
    for record in ranks:
        orders = [seen(record, epoch) for epoch in range(record["epochs"])]
        for epoch, (before, after) in enumerate(zip(orders, orders[1:], strict=False)):
            why = (
                "the sampler does not shuffle"
                if after == sorted(after)
                else "sampler.set_epoch(epoch) is missing at the start of each epoch"
            )
            assert before != after, (
                f"rank {record['rank']} saw the same {len(after)} samples in the same order "
                f"in epochs {epoch} and {epoch + 1}: {why}"
            )


@needs("joins")
def test_loss(ranks: list[dict]) -> None:
    """TODO 6: train returns the mean loss over all ranks"""
    sums, counts = [], []
    for record in ranks:
        assert record["returned"] is not None, (
            f"rank {record['rank']} got {record['returned_type']} from train, not the mean loss as a finite number"
        )
        last = epoch_batches(record, record["epochs"] - 1)
        sums.append(sum(record["losses"][last]))
        counts.append(sum(len(batch) for batch in record["batches"][last]))
    mean = sum(sums) / sum(counts)
    returned = [record["returned"] for record in ranks]
    right = [math.isclose(value, mean, abs_tol=CLOSE) for value in returned]
    if all(right):
        return
    wrong = right.index(False)
    value = f"rank {wrong} returned a loss of {returned[wrong]:.3f}"
    truth = f"over all ranks the mean is {mean:.3f}"
    if math.isclose(returned[wrong], sums[wrong] / counts[wrong], abs_tol=CLOSE):
        pytest.fail(f"{value}, the mean over its own samples, but {truth}: add up loss and count with dist.all_reduce")
    if right[0]:
        pytest.fail(f"rank 0 returned {returned[0]:.3f}, but {value}: all_reduce gives the result to every rank")
    if math.isclose(returned[wrong], mean * len(ranks), rel_tol=CLOSE):
        pytest.fail(f"{value}, {len(ranks)} times too much, since {truth}: after adding up over ranks, divide")
    pytest.fail(
        f"{value}, but {truth} in the last epoch: weight each batch by its samples, "
        "add up losses and counts over the ranks, then divide"
    )


@needs("runs")
def test_saves(ranks: list[dict], compared: dict) -> None:
    """TODO 7: rank 0 alone saves, for a plain model to load"""
    writers = [record["rank"] for record in ranks if record["saves"]]
    found = compared["checkpoint"]
    fault = found.get("fault")
    assert writers or fault != "absent", "nobody saved the model: rank 0 has to write it to checkpoint"
    if len(writers) == len(ranks):
        pytest.fail(f"every rank wrote the checkpoint, {len(ranks)} at the same time: save only if rank == 0")
    others = [record for record in ranks if record["saves"] and record["rank"]]
    first_of_host = all(record["local_rank"] == 0 for record in others)
    assert not others, f"{plural('rank', writers)} wrote the checkpoint: " + (
        "every host has a local rank 0, so ask for rank 0" if first_of_host else "save only if rank == 0"
    )
    assert fault != "absent", "rank 0 saved somewhere, but not to the file checkpoint"
    assert fault != "unreadable", (
        "the checkpoint holds no weights that torch.load can read: save model.state_dict(), not the model"
    )
    assert fault != "prefix", (
        "every key in the checkpoint begins with module., so a plain model cannot load it: "
        "save the state_dict of the model inside the wrapper"
    )
    assert fault is None, "the checkpoint holds other keys than the model: save the model's state_dict"
    assert close(found["apart"]), (
        f"the checkpoint differs {off(found['apart'])} from the trained model: save after the last step"
    )


@needs("joins")
def test_leaves(ranks: list[dict]) -> None:
    """TODO 8: the group is left at the end"""
    still = [record["rank"] for record in ranks if not record["group_left"]]
    assert not still, (
        f"{plural('rank', still)} left the process group open: it is not destroyed at the end of train; "
        "call dist.destroy_process_group()"
    )
