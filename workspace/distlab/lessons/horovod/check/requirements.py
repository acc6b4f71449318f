"""What makes the exercise horovod_ddp right, in the order in which one would mend it."""

import pytest

from distlab.checks import replicated
from distlab.checks.engine import Job, needs
from distlab.checks.replicated import close, off

LAUNCHER = "horovodrun"


@pytest.fixture
def ranks(job: Job) -> list[dict]:
    """What each rank saw of its training."""
    return job.each("trained")


@pytest.fixture
def compared(job: Job) -> dict:
    """What rank 0 found when it held the ranks against each other and against one process."""
    return job.each("compared")[0]


def _called(ranks: list[dict], name: str) -> bool:
    return all(name in record["called"] for record in ranks)


def test_runs(job: Job) -> None:
    """the file runs to its end on every rank"""
    assert job.trouble is None, job.trouble


@needs("runs")
def test_joins(ranks: list[dict]) -> None:
    """TODO 1: the ranks join one group"""
    fault = replicated.join_fault(
        ranks,
        start="start with TODO 1, hvd.init() at the top of train",
        whole="call hvd.init() without arguments",
    )
    assert not fault, fault


def test_device(job: Job) -> None:
    """TODO 2: each rank takes the GPU of its local rank"""
    records = job.each("device")
    if not records:
        pytest.skip("device_for was not reached")
    fault = replicated.device_fault(records[0]["choices"])
    assert not fault, fault
    for record in job.each("trained"):
        # Before it joins, each rank takes itself for the first of all.
        assert not record["group"] or record["asked"] in (None, record["local_rank"]), (
            f"train asked rank {record['rank']} for the device of local rank {record['asked']}, "
            f"but its local rank is {record['local_rank']}: hvd.local_rank() says it"
        )


@needs("joins")
def test_sampler(ranks: list[dict]) -> None:
    """TODO 3: in each epoch every sample is on one rank"""
    fault = replicated.share_fault(ranks, same="DistributedSampler needs hvd.size() and the global rank, hvd.rank()")
    assert not fault, fault


@needs("joins")
def test_rate(ranks: list[dict]) -> None:
    """TODO 4: the learning rate is scaled where that is asked for"""
    for record in ranks:
        scaled = record["lr"] * len(ranks)
        wrong = [rate for rate in record["rates"] if not _equal(rate, scaled)]
        assert not wrong, (
            f"with scale_lr rank {record['rank']} trained with a learning rate of {wrong[0]:g}, "
            f"but {len(ranks)} ranks times {record['lr']:g} is {scaled:g}: multiply lr by hvd.size()"
        )
        wrong = [rate for rate in record["rates_unscaled"] if not _equal(rate, record["lr"])]
        assert not wrong, (
            f"without scale_lr rank {record['rank']} trained with a learning rate of {wrong[0]:g}, "
            f"but {record['lr']:g} was given: multiply only where scale_lr is true"
        )


def _equal(one: float, other: float) -> bool:
    return abs(one - other) < 1e-6 * other


@needs("joins")
def test_wraps(ranks: list[dict], compared: dict) -> None:
    """TODO 5: gradients are averaged over the ranks"""
    wrapped = _called(ranks, "DistributedOptimizer")
    why = (
        "the optimizer that steps is not the one that hvd.DistributedOptimizer returned"
        if wrapped
        else "the optimizer is not wrapped in hvd.DistributedOptimizer, so nobody averaged them"
    )
    for rank, difference in enumerate(compared["gradients"]):
        assert close(difference), (
            f"at the first step the gradients of rank 0 and rank {rank} differ {off(difference)}: {why}"
        )


@needs("joins")
def test_starts(ranks: list[dict], compared: dict) -> None:
    """TODO 6: all ranks begin with rank 0's parameters and optimizer state"""
    for rank, difference in enumerate(compared["began"]):
        asked = _called(ranks, "broadcast_parameters")
        why = (
            "hvd.broadcast_parameters was called too late or for other parameters; it takes model.state_dict() and "
            "root_rank=0, before the first batch"
            if asked
            else "nobody called hvd.broadcast_parameters(model.state_dict(), root_rank=0)"
        )
        assert close(difference), f"rank {rank} began with other weights than rank 0 brought: {why}"
    if not close(compared["momentum"][0]):
        raise AssertionError(
            "at the first step the optimizer of rank 0 no longer had the state that rank 0 was given: "
            "hvd.DistributedOptimizer starts without a state, so wrap first, then load, then broadcast"
        )
    for rank, difference in enumerate(compared["momentum"]):
        asked = _called(ranks, "broadcast_optimizer_state")
        why = (
            "hvd.broadcast_optimizer_state must come after the state is loaded, for the wrapped optimizer"
            if asked
            else "nobody called hvd.broadcast_optimizer_state(optimizer, root_rank=0)"
        )
        assert close(difference), f"rank {rank} began without the optimizer state of rank 0: {why}"


@needs("rate", "wraps", "starts")
def test_trains(ranks: list[dict], compared: dict) -> None:
    """all ranks train as one process would"""
    for record in ranks:
        batches, steps = len(record["batches"]), len(record["rates"])
        assert steps == batches, (
            f"rank {record['rank']} made {steps} steps for {batches} batches: call optimizer.step() once for each"
        )
    for rank, difference in enumerate(compared["to_rank_0"]):
        assert close(difference), f"in the end the weights of rank 0 and rank {rank} differ {off(difference)}"
    assert close(compared["to_twin"]), (
        f"in the end the weights differ {off(compared['to_twin'])} from those of one process that took the same "
        "batches: each step is one zero_grad, one backward and one step, and Horovod averages, it does not add up"
    )


@needs("sampler")
def test_epochs(ranks: list[dict]) -> None:
    """TODO 7: every epoch has a new order"""
    fault = replicated.order_fault(ranks)
    assert not fault, fault


@needs("joins")
def test_loss(ranks: list[dict]) -> None:
    """TODO 8: train returns the mean loss over all ranks"""
    fault = replicated.loss_fault(
        ranks,
        add_up="add up loss and count with hvd.allreduce(..., op=hvd.Sum)",
        everywhere="hvd.allreduce gives the result to every rank",
    )
    assert not fault, fault


@needs("runs")
def test_saves(ranks: list[dict], compared: dict) -> None:
    """TODO 9: rank 0 alone saves, for a plain model to load"""
    fault = replicated.save_fault(ranks, compared["checkpoint"])
    assert not fault, fault
