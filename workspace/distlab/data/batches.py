"""From a data set to batches: one indexing operation each, the same order for the same seed."""

import os
import sys
from collections.abc import Iterable, Sized

import torch
from torch import Tensor
from torch.utils.data import DataLoader, Dataset, Sampler, Subset, default_collate

from distlab.errors import SettingError
from distlab.process import read_placement

SHARED_MEMORY = "/dev/shm"
# A worker prefetches two batches and is making a third.
BATCHES_PER_WORKER = 3


class Batch:
    """Samples fetched together: a sequence of (image, label), which `collate` takes apart without copying."""

    def __init__(self, images: Tensor, labels: Tensor) -> None:
        self.images, self.labels = images, labels

    def __len__(self) -> int:
        return len(self.labels)

    def __getitem__(self, index: int) -> tuple[Tensor, int]:
        return self.images[index], int(self.labels[index])


def collate(samples: Batch | list[tuple[Tensor, int]]) -> tuple[Tensor, Tensor]:
    """Images (N, C, H, W) and labels (N,), int64."""
    if isinstance(samples, Batch):
        return samples.images, samples.labels
    images, labels = default_collate(samples)
    return images, labels


def loader(
    dataset: Dataset,
    batch_size: int,
    *,
    sampler: Sampler | Iterable[int] | None = None,
    shuffle: bool = False,
    seed: int = 0,
    drop_last: bool = False,
    workers: int = 0,
) -> DataLoader:
    """Batches of (images, labels).

    Args:
        seed: with `shuffle`, two loaders of one seed give the same epochs, each epoch in an order of its own.
        workers: processes that load. Fewer, with a line on stderr, when shared memory is too small.

    Raises:
        ValueError: both a sampler and shuffle are given.
    """
    if workers:
        workers = _workers_that_fit(workers, batch_size, dataset)
    return DataLoader(
        dataset,
        batch_size,
        sampler=sampler,
        shuffle=shuffle,
        drop_last=drop_last,
        num_workers=workers,
        persistent_workers=workers > 0,
        collate_fn=collate,
        generator=torch.Generator().manual_seed(seed),
    )


def size_of(samples: object) -> int:
    """How many there are in a data set or a sampler: torch's types leave the length out, since some have none."""
    if not isinstance(samples, Sized):
        raise TypeError(f"a {type(samples).__name__} has no length")
    return len(samples)


def shard(dataset: Dataset, rank: int, world_size: int) -> Subset:
    """A rank's part of a data set: each sample on exactly one rank, sizes differ by at most one.

    For validation, where the padding of DistributedSampler would count samples twice.
    """
    if not 0 <= rank < world_size:
        raise ValueError(f"rank {rank} lies outside a world of {world_size}")
    return Subset(dataset, range(rank, size_of(dataset), world_size))


def require_samples(n_samples: int, world_size: int) -> None:
    """Refuse more ranks than samples.

    Raises:
        SettingError: some rank would have nothing to train on.
    """
    if n_samples < world_size:
        raise SettingError(
            f"{world_size} ranks cannot share {n_samples} sample{'s' if n_samples != 1 else ''}: "
            f"start at most {n_samples} or give more data"
        )


def _workers_that_fit(workers: int, batch_size: int, dataset: Dataset) -> int:
    if not os.path.isdir(SHARED_MEMORY) or not size_of(dataset):
        return workers
    status = os.statvfs(SHARED_MEMORY)
    me = read_placement()
    free = status.f_bavail * status.f_frsize / me.local_world_size
    image, _ = dataset[0]
    needed = BATCHES_PER_WORKER * batch_size * image.element_size() * image.nelement()
    fitting = min(workers, int(free // needed))
    if fitting < workers and me.local_rank == 0:
        print(
            f"{me.host}: {SHARED_MEMORY} has {free / 2**20:,.0f} MB free for each rank, {workers} loading workers need "
            f"{workers * needed / 2**20:,.0f} MB: using {fitting}. Give the container more with --shm-size "
            "(it must be created anew)",
            file=sys.stderr,
            flush=True,
        )
    return fitting
