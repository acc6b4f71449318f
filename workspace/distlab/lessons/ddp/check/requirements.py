"""What makes the exercise ddp right, in the order in which one would mend it."""

import pytest

from distlab.checks import replicated
from distlab.checks.engine import Job, needs
from distlab.checks.replicated import close, off
from distlab.checks.result import plural


@pytest.fixture
def ranks(job: Job) -> list[dict]:
    """What each rank saw of its training."""
    return job.each("trained")


@pytest.fixture
def compared(job: Job) -> dict:
    """What rank 0 found when it held the ranks against each other and against one process."""
    return job.each("compared")[0]


def test_runs(job: Job) -> None:
    """the file runs to its end on every rank"""
    assert job.trouble is None, job.trouble


@needs("runs")
def test_joins(ranks: list[dict]) -> None:
    """TODO 1: the ranks join one group"""
    fault = replicated.join_fault(
        ranks,
        start="start with TODO 1, dist.init_process_group() at the top of train",
        whole="call dist.init_process_group() without rank and world_size, which the launcher has set",
    )
    assert not fault, fault


def test_device(job: Job) -> None:
    """TODO 2: each rank takes the GPU of its local rank"""
    records = job.each("device")
    if not records:
        pytest.skip("device_for was not reached")
    fault = replicated.device_fault(records[0]["choices"])
    assert not fault, fault


@needs("joins")
def test_sampler(ranks: list[dict]) -> None:
    """TODO 3: in each epoch every sample is on one rank"""
    fault = replicated.share_fault(
        ranks, same="DistributedSampler needs the global rank, and asks the group when you give none"
    )
    assert not fault, fault


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
    fault = replicated.order_fault(ranks)
    assert not fault, fault


@needs("joins")
def test_loss(ranks: list[dict]) -> None:
    """TODO 6: train returns the mean loss over all ranks"""
    fault = replicated.loss_fault(
        ranks,
        add_up="add up loss and count with dist.all_reduce",
        everywhere="all_reduce gives the result to every rank",
    )
    assert not fault, fault


@needs("runs")
def test_saves(ranks: list[dict], compared: dict) -> None:
    """TODO 7: rank 0 alone saves, for a plain model to load"""
    fault = replicated.save_fault(ranks, compared["checkpoint"])
    assert not fault, fault


@needs("joins")
def test_leaves(ranks: list[dict]) -> None:
    """TODO 8: the group is left at the end"""
    still = [record["rank"] for record in ranks if not record["group_left"]]
    assert not still, (
        f"{plural('rank', still)} left the process group open: it is not destroyed at the end of train; "
        "call dist.destroy_process_group()"
    )
