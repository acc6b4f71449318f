"""What makes the exercise horovod_ddp right, in the order in which one would mend it."""

from distlab.checks import replicated
from distlab.checks.engine import Observed, Open, Requirements
from distlab.checks.replicated import close, off

HINTS = {
    "Horovod has not been initialized": "let it find the other ranks first, with hvd.init()",
    "optimizer.zero_grad() was called after loss.backward()": "call it before backward, or after step",
    "Gradients were computed more than backward_passes_per_step": "call step once for each backward",
    "named_parameters was specified, but one or more": "give hvd.DistributedOptimizer model.named_parameters()",
}
REQUIREMENTS = Requirements(HINTS)


def _called(ranks: list[dict], name: str) -> bool:
    return all(name in record["called"] for record in ranks)


@REQUIREMENTS.add()
def runs(observed: Observed) -> str | None:
    """the file runs to its end on every rank"""
    return observed.trouble


@REQUIREMENTS.add(needs=("runs",))
def joins(observed: Observed) -> str | None:
    """TODO 1: the ranks join one group"""
    return replicated.join_fault(
        observed.each("trained"),
        start="start with TODO 1, hvd.init() at the top of train",
        whole="call hvd.init() without arguments",
    )


@REQUIREMENTS.add()
def device(observed: Observed) -> str | None:
    """TODO 2: each rank takes the GPU of its local rank"""
    records = observed.each("device")
    if not records:
        raise Open("device_for was not reached")
    fault = replicated.device_fault(records[0]["choices"])
    if fault:
        return fault
    for record in observed.each("trained"):
        # Before it joins, each rank takes itself for the first of all.
        if record["group"] and record["asked"] not in (None, record["local_rank"]):
            return (
                f"train asked rank {record['rank']} for the device of local rank {record['asked']}, "
                f"but its local rank is {record['local_rank']}: hvd.local_rank() says it"
            )
    return None


@REQUIREMENTS.add(needs=("joins",))
def sampler(observed: Observed) -> str | None:
    """TODO 3: in each epoch every sample is on one rank"""
    ranks = observed.each("trained")
    return replicated.share_fault(ranks, same="DistributedSampler needs hvd.size() and the global rank, hvd.rank()")


@REQUIREMENTS.add(needs=("joins",))
def rate(observed: Observed) -> str | None:
    """TODO 4: the learning rate is scaled where that is asked for"""
    ranks = observed.each("trained")
    for record in ranks:
        scaled = record["lr"] * len(ranks)
        wrong = [rate for rate in record["rates"] if not _equal(rate, scaled)]
        if wrong:
            return (
                f"with scale_lr rank {record['rank']} trained with a learning rate of {wrong[0]:g}, "
                f"but {len(ranks)} ranks times {record['lr']:g} is {scaled:g}: multiply lr by hvd.size()"
            )
        wrong = [rate for rate in record["rates_unscaled"] if not _equal(rate, record["lr"])]
        if wrong:
            return (
                f"without scale_lr rank {record['rank']} trained with a learning rate of {wrong[0]:g}, "
                f"but {record['lr']:g} was given: multiply only where scale_lr is true"
            )
    return None


def _equal(one: float, other: float) -> bool:
    return abs(one - other) < 1e-6 * other


@REQUIREMENTS.add(needs=("joins",))
def wraps(observed: Observed) -> str | None:
    """TODO 5: gradients are averaged over the ranks"""
    ranks, compared = observed.each("trained"), observed.first("compared")
    wrapped = _called(ranks, "DistributedOptimizer")
    why = (
        "the optimizer that steps is not the one that hvd.DistributedOptimizer returned"
        if wrapped
        else "the optimizer is not wrapped in hvd.DistributedOptimizer, so nobody averaged them"
    )
    for rank, difference in enumerate(compared["gradients"]):
        if not close(difference):
            return f"at the first step the gradients of rank 0 and rank {rank} differ {off(difference)}: {why}"
    return None


@REQUIREMENTS.add(needs=("joins",))
def starts(observed: Observed) -> str | None:
    """TODO 6: all ranks begin with rank 0's parameters and optimizer state"""
    ranks, compared = observed.each("trained"), observed.first("compared")
    for rank, difference in enumerate(compared["began"]):
        asked = _called(ranks, "broadcast_parameters")
        why = (
            "hvd.broadcast_parameters was called too late or for other parameters; it takes model.state_dict() and "
            "root_rank=0, before the first batch"
            if asked
            else "nobody called hvd.broadcast_parameters(model.state_dict(), root_rank=0)"
        )
        if not close(difference):
            return f"rank {rank} began with other weights than rank 0 brought: {why}"
    if not close(compared["momentum"][0]):
        return (
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
        if not close(difference):
            return f"rank {rank} began without the optimizer state of rank 0: {why}"
    return None


@REQUIREMENTS.add(needs=("rate", "wraps", "starts"))
def trains(observed: Observed) -> str | None:
    """all ranks train as one process would"""
    ranks, compared = observed.each("trained"), observed.first("compared")
    for record in ranks:
        batches, steps = len(record["batches"]), len(record["rates"])
        if steps != batches:
            return (
                f"rank {record['rank']} made {steps} steps for {batches} batches: call optimizer.step() once for each"
            )
    for rank, difference in enumerate(compared["to_rank_0"]):
        if not close(difference):
            return f"in the end the weights of rank 0 and rank {rank} differ {off(difference)}"
    if not close(compared["to_twin"]):
        return (
            f"in the end the weights differ {off(compared['to_twin'])} from those of one process that took the same "
            "batches: each step is one zero_grad, one backward and one step, and Horovod averages, it does not add up"
        )
    return None


@REQUIREMENTS.add(needs=("sampler",))
def epochs(observed: Observed) -> str | None:
    """TODO 7: every epoch has a new order"""
    return replicated.order_fault(observed.each("trained"))


@REQUIREMENTS.add(needs=("joins",))
def loss(observed: Observed) -> str | None:
    """TODO 8: train returns the mean loss over all ranks"""
    return replicated.loss_fault(
        observed.each("trained"),
        add_up="add up loss and count with hvd.allreduce(..., op=hvd.Sum)",
        everywhere="hvd.allreduce gives the result to every rank",
    )


@REQUIREMENTS.add(needs=("runs",))
def saves(observed: Observed) -> str | None:
    """TODO 9: rank 0 alone saves, for a plain model to load"""
    return replicated.save_fault(observed.each("trained"), observed.first("compared")["checkpoint"])
