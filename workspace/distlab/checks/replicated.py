"""What holds for any training on replicas: from what ranks reported to one sentence about the first fault.

Reads records of ranks: batches (of sample indices), losses (sums over a batch), epochs, samples, batch_size,
group (size of it, 0 when there was none), returned, returned_type, saves, local_rank.
"""

import itertools
import math
from collections.abc import Sequence
from typing import Any

from distlab.checks.result import plural

# Sums of float32 in another order; a real mistake is a hundred times larger.
CLOSE = 1e-4


def epoch_batches(record: dict[str, Any], epoch: int) -> slice:
    """Which of a rank's batches belong to an epoch."""
    steps = len(record["batches"]) // record["epochs"]
    return slice(epoch * steps, (epoch + 1) * steps)


def seen(record: dict[str, Any], epoch: int) -> list[int]:
    """Samples that a rank trained on in an epoch, in its order."""
    return [sample for batch in record["batches"][epoch_batches(record, epoch)] for sample in batch]


def off(difference: float | None) -> str:
    """A difference as text; None stands for one that is not finite."""
    return "without limit (they are no longer finite)" if difference is None else f"by up to {difference:.2g}"


def close(difference: float | None) -> bool:
    """True when a difference is only that of another order of adding."""
    return difference is not None and difference <= CLOSE


def join_fault(ranks: Sequence[dict[str, Any]], start: str, whole: str) -> str | None:
    """Ranks that trained alone, or in a group of some.

    Args:
        start: what to do when nobody joined.
        whole: what to do when a group is too small.
    """
    if not all(record["batches"] for record in ranks):
        return "the model was never called, so it was not trained"
    if not any(record["group"] for record in ranks):
        return f"the {len(ranks)} ranks never met and each trained a model of its own: {start}"
    for record in ranks:
        if record["group"] != len(ranks):
            return (
                f"rank {record['rank']} trained in a group of {record['group']}, but there are {len(ranks)} ranks: "
                f"{whole}"
            )
    return None


def device_fault(choices: Sequence[dict[str, Any]]) -> str | None:
    """A rank that takes another's GPU, or one that is not there."""
    for choice in choices:
        (rank, local_rank), gpus = choice["place"], choice["gpus"]
        who = f"on a host with {gpus or 'no'} GPUs rank {rank}, whose local rank is {local_rank},"
        if "error" in choice:
            return f"{who} got {choice['error']} from device_for"
        right = f"cuda:{local_rank}" if gpus else "cpu"
        if choice["device"] != right:
            count = "a host counts its GPUs from 0, so choose by local_rank, not by rank"
            why = count if gpus else "fall back to the cpu"
            return f"{who} chose {choice['device']}, but {right} is its own: {why}"
    return None


def share_fault(ranks: Sequence[dict[str, Any]], same: str) -> str | None:
    """Samples of the first epoch that two ranks saw, or none.

    Args:
        same: what to do when two ranks have the same share.
    """
    n, epochs = ranks[0]["samples"], ranks[0]["epochs"]
    for record in ranks:
        steps = len(record["batches"])
        if steps % epochs:
            return (
                f"rank {record['rank']} took {steps} steps in {epochs} epochs: every epoch has the same number of steps"
            )
    share = [set(seen(record, 0)) for record in ranks]
    pairs = [(a, b, len(share[a] & share[b])) for a, b in itertools.combinations(range(len(ranks)), 2)]
    # The pair with most in common says most about what is wrong.
    a, b, common = max(pairs, key=lambda pair: pair[2])
    if common == n:
        return f"rank {a} and rank {b} both saw all {n} samples in epoch 0: the loader has no DistributedSampler"
    if common and share[a] == share[b]:
        return f"rank {a} and rank {b} saw the same {common} samples in epoch 0: {same}"
    if common:
        return (
            f"rank {a} and rank {b} have {common} samples of epoch 0 in common: "
            "all ranks must shuffle with the same seed, each for its own share"
        )
    unseen = n - len(set().union(*share))
    # A loader may drop a last batch that is not full.
    if unseen >= len(ranks) * ranks[0]["batch_size"]:
        return (
            f"no rank saw {unseen} of the {n} samples in epoch 0: "
            "the shares of all ranks together must be the whole set"
        )
    return None


def order_fault(ranks: Sequence[dict[str, Any]]) -> str | None:
    """An epoch in the order of the one before."""
    for record in ranks:
        orders = [seen(record, epoch) for epoch in range(record["epochs"])]
        for epoch, (before, after) in enumerate(itertools.pairwise(orders)):
            if before == after:
                why = (
                    "the sampler does not shuffle"
                    if after == sorted(after)
                    else "sampler.set_epoch(epoch) is missing at the start of each epoch"
                )
                return (
                    f"rank {record['rank']} saw the same {len(after)} samples in the same order "
                    f"in epochs {epoch} and {epoch + 1}: {why}"
                )
    return None


def loss_fault(ranks: Sequence[dict[str, Any]], add_up: str, everywhere: str) -> str | None:
    """A returned loss that is not the mean over all samples of the last epoch.

    Args:
        add_up: what to do when it is the mean of one rank.
        everywhere: what to know when rank 0 alone has the right one.
    """
    sums, counts = [], []
    for record in ranks:
        if record["returned"] is None:
            return (
                f"rank {record['rank']} got {record['returned_type']} from train, not the mean loss as a finite number"
            )
        last = epoch_batches(record, record["epochs"] - 1)
        sums.append(sum(record["losses"][last]))
        counts.append(sum(len(batch) for batch in record["batches"][last]))
    mean = sum(sums) / sum(counts)
    returned = [record["returned"] for record in ranks]
    right = [math.isclose(value, mean, abs_tol=CLOSE) for value in returned]
    if all(right):
        return None
    wrong = right.index(False)
    value = f"rank {wrong} returned a loss of {returned[wrong]:.3f}"
    truth = f"over all ranks the mean is {mean:.3f}"
    if math.isclose(returned[wrong], sums[wrong] / counts[wrong], abs_tol=CLOSE):
        return f"{value}, the mean over its own samples, but {truth}: {add_up}"
    if right[0]:
        return f"rank 0 returned {returned[0]:.3f}, but {value}: {everywhere}"
    if math.isclose(returned[wrong], mean * len(ranks), rel_tol=CLOSE):
        return f"{value}, {len(ranks)} times too much, since {truth}: after adding up over ranks, divide"
    return (
        f"{value}, but {truth} in the last epoch: weight each batch by its samples, "
        "add up losses and counts over the ranks, then divide"
    )


def save_fault(ranks: Sequence[dict[str, Any]], found: dict[str, Any]) -> str | None:
    """A checkpoint that the wrong ranks wrote, or that does not hold the trained model.

    Args:
        found: what is in the file: `fault` in a word, or how far `apart` from the model.
    """
    writers = [record["rank"] for record in ranks if record["saves"]]
    others = [record for record in ranks if record["saves"] and record["rank"]]
    fault = found.get("fault")
    if not writers and fault == "absent":
        return "nobody saved the model: rank 0 has to write it to checkpoint"
    if len(writers) == len(ranks):
        return f"every rank wrote the checkpoint, {len(ranks)} at the same time: save only if rank == 0"
    if others:
        first_of_host = all(record["local_rank"] == 0 for record in others)
        why = "every host has a local rank 0, so ask for rank 0" if first_of_host else "save only if rank == 0"
        return f"{plural('rank', writers)} wrote the checkpoint: {why}"
    faults = {
        "absent": "rank 0 saved somewhere, but not to the file checkpoint",
        "unreadable": "the checkpoint holds no weights that torch.load can read: save model.state_dict(), "
        "not the model",
        "prefix": "every key in the checkpoint begins with module., so a plain model cannot load it: "
        "save the state_dict of the model inside the wrapper",
        "other": "the checkpoint holds other keys than the model: save the model's state_dict",
    }
    if fault:
        return faults[fault]
    if not close(found["apart"]):
        return f"the checkpoint differs {off(found['apart'])} from the trained model: save after the last step"
    return None
