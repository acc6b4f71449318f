"""What makes the exercise ddp right, in the order in which one would mend it."""

from distlab.checks import replicated
from distlab.checks.engine import Observed, Open, Requirements
from distlab.checks.replicated import close, off
from distlab.checks.result import plural

REQUIREMENTS = Requirements()


@REQUIREMENTS.add()
def runs(observed: Observed) -> str | None:
    """the file runs to its end on every rank"""
    return observed.trouble


@REQUIREMENTS.add(needs=("runs",))
def joins(observed: Observed) -> str | None:
    """TODO 1: the ranks join one group"""
    return replicated.join_fault(
        observed.each("trained"),
        start="start with TODO 1, dist.init_process_group() at the top of train",
        whole="call dist.init_process_group() without rank and world_size, which the launcher has set",
    )


@REQUIREMENTS.add()
def device(observed: Observed) -> str | None:
    """TODO 2: each rank takes the GPU of its local rank"""
    records = observed.each("device")
    if not records:
        raise Open("device_for was not reached")
    return replicated.device_fault(records[0]["choices"])


@REQUIREMENTS.add(needs=("joins",))
def sampler(observed: Observed) -> str | None:
    """TODO 3: in each epoch every sample is on one rank"""
    return replicated.share_fault(
        observed.each("trained"), same="DistributedSampler needs the global rank, and asks the group when you give none"
    )


@REQUIREMENTS.add(needs=("joins",))
def wrap(observed: Observed) -> str | None:
    """TODO 4: gradients are averaged, and all ranks train as one process would"""
    ranks, compared = observed.each("trained"), observed.first("compared")
    wrapped = all(record["wrapped"] for record in ranks)
    why = (
        "the model was wrapped, but batches do not go through the wrapped one"
        if wrapped
        else "the model is not wrapped in DistributedDataParallel, so nobody averaged the gradients"
    )
    steps = len(ranks[0]["batches"])
    for rank, difference in enumerate(compared["to_rank_0"]):
        if not close(difference):
            return f"after {steps} steps the weights of rank 0 and rank {rank} differ {off(difference)}: {why}"
    if not close(compared["to_twin"]):
        return (
            f"after {steps} steps the weights differ {off(compared['to_twin'])} from those of one process that took "
            "the same batches: each step is one zero_grad, one backward and one optimizer.step, with lr as it is given"
        )
    return None


@REQUIREMENTS.add(needs=("sampler",))
def epochs(observed: Observed) -> str | None:
    """TODO 5: every epoch has a new order"""
    return replicated.order_fault(observed.each("trained"))


@REQUIREMENTS.add(needs=("joins",))
def loss(observed: Observed) -> str | None:
    """TODO 6: train returns the mean loss over all ranks"""
    return replicated.loss_fault(
        observed.each("trained"),
        add_up="add up loss and count with dist.all_reduce",
        everywhere="all_reduce gives the result to every rank",
    )


@REQUIREMENTS.add(needs=("runs",))
def saves(observed: Observed) -> str | None:
    """TODO 7: rank 0 alone saves, for a plain model to load"""
    return replicated.save_fault(observed.each("trained"), observed.first("compared")["checkpoint"])


@REQUIREMENTS.add(needs=("joins",))
def leaves(observed: Observed) -> str | None:
    """TODO 8: the group is left at the end"""
    still = [record["rank"] for record in observed.each("trained") if not record["group_left"]]
    if still:
        return (
            f"{plural('rank', still)} left the process group open: it is not destroyed at the end of train; "
            "call dist.destroy_process_group()"
        )
    return None
