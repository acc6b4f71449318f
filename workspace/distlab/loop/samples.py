"""Who trains on which sample, and what is left of an epoch that was interrupted.

An epoch's order follows from (seed, epoch) alone. torch's DistributedSampler deals it out in
strides, so that step k of all ranks together covers the next world_size * batch_size samples of
that order, however many ranks there are. So an interrupted epoch has used a prefix of
the order, and any number of ranks can share the rest.

DistributedSampler also repeats samples from the beginning of the order until every rank has the
same number, at most world_size - 1 in all, since all ranks must take the same number of steps.
"""

from typing import Any

from torch.utils.data import DataLoader, Dataset, DistributedSampler, Subset

from distlab.data.batches import size_of


class Shuffle(DistributedSampler):
    """All samples in a new order each epoch: the order that DistributedSampler deals out to ranks."""

    def __init__(self, dataset: Dataset, seed: int = 0) -> None:
        super().__init__(dataset, num_replicas=1, rank=0, seed=seed)


def order(sampler: DistributedSampler, epoch: int) -> list[int]:
    """The order of an epoch before it is dealt to ranks, each sample once."""
    whole: DistributedSampler[int] = DistributedSampler(
        sampler.dataset, 1, 0, shuffle=sampler.shuffle, seed=sampler.seed
    )
    whole.set_epoch(epoch)
    return list(whole)


def rest_of_epoch(train: DataLoader, epoch: int, consumed: int) -> DataLoader:
    """A loader for this rank's part of what an epoch has left.

    Args:
        train: the loader of whole epochs, with a DistributedSampler or Shuffle.
        consumed: how many samples of this epoch all ranks together have trained on.
    """
    dealt = train.sampler
    if not isinstance(dealt, DistributedSampler):
        raise TypeError("only a DistributedSampler or Shuffle has an order of which something can be left")
    left = Subset(train.dataset, order(dealt, epoch)[consumed:])
    sampler: DistributedSampler[Any] = DistributedSampler(
        left, dealt.num_replicas, dealt.rank, shuffle=False, seed=dealt.seed, drop_last=dealt.drop_last
    )
    return DataLoader(
        left,
        train.batch_size,
        sampler=sampler,
        num_workers=train.num_workers,
        collate_fn=train.collate_fn,
        pin_memory=train.pin_memory,
        drop_last=train.drop_last,
        generator=train.generator,
    )


def total_samples(train: DataLoader) -> int:
    """Samples of a whole epoch, over all ranks."""
    return size_of(train.sampler.dataset if isinstance(train.sampler, DistributedSampler) else train.dataset)


def shares(train: DataLoader) -> int:
    """Among how many ranks the sampler deals out an epoch; 1 when it does not."""
    return train.sampler.num_replicas if isinstance(train.sampler, DistributedSampler) else 1


def own_samples(train: DataLoader) -> int:
    """How many samples of an epoch are this rank's, without the padding at its end."""
    sampler = train.sampler
    if not isinstance(sampler, DistributedSampler):
        return size_of(sampler)
    return min(len(sampler), len(range(sampler.rank, size_of(sampler.dataset), sampler.num_replicas)))
