"""Batches are the samples, in a fixed order, and shards cover everything once."""

import os
from types import SimpleNamespace

import pytest
import torch
from distlab import data
from distlab.data import batches
from distlab.data.images import InMemory
from torch.utils.data import DataLoader, DistributedSampler


@pytest.fixture
def images():
    """37 images of 3x4x5 with hand-picked moments; label = place modulo 3."""
    torch.manual_seed(3)
    pixels = torch.randint(0, 256, (37, 3, 4, 5), dtype=torch.uint8)
    return InMemory(pixels, torch.arange(37) % 3, [0.5, 0.25, 0.1], [0.5, 0.2, 0.4])


def order(loader):
    """The labels' places, recovered from the batches by their pixels."""
    return [round(float(image.sum()), 3) for x, _ in loader for image in x]


def test_a_sample_is_normalised(images):
    images.images[5] = 128
    images.images[5, 0, 0, 0] = 0
    image, label = images[5]
    assert (label, type(label), image.dtype, tuple(image.shape)) == (2, int, torch.float32, (3, 4, 5))
    assert image[0, 0, 0].item() == pytest.approx(-1.0)
    for channel, (mean, std) in enumerate(((0.5, 0.5), (0.25, 0.2), (0.1, 0.4))):
        assert image[channel, 1, 1].item() == pytest.approx((128 / 255 - mean) / std, abs=1e-5)
    assert images.images.dtype == torch.uint8 and images.images[5, 1, 1, 1] == 128


def test_a_batch_is_its_samples_to_the_bit(images):
    wanted = [4, 0, 36, 4, 17]
    x, y = data.collate(images.__getitems__(wanted))
    assert torch.equal(x, torch.stack([images[place][0] for place in wanted]))
    assert y.tolist() == [images[place][1] for place in wanted] and y.dtype == torch.int64
    assert torch.equal(images[-1][0], images[36][0]) and images[-1][1] == images[36][1]
    with pytest.raises(IndexError, match="sample 37 of 37"):
        images[37]


def test_a_batch_costs_one_look_up(images, monkeypatch):
    asked = []
    look_up = InMemory.pixels

    def counting(self, places):
        asked.append(len(places))
        return look_up(self, places)

    monkeypatch.setattr(InMemory, "pixels", counting)
    sizes = [len(y) for _, y in data.loader(images, 10)]
    assert asked == sizes == [10, 10, 10, 7]
    asked.clear()
    assert [len(y) for _, y in data.loader(data.shard(images, 1, 2), 10)] == asked == [10, 8]


def test_a_plain_loader_gives_the_same_batches(images):
    for (x, y), (own_x, own_y) in zip(DataLoader(images, 8), data.loader(images, 8), strict=True):
        assert torch.equal(x, own_x) and torch.equal(y, own_y)


def test_one_seed_one_order(images):
    first, twin = (data.loader(images, 8, shuffle=True, seed=5) for _ in range(2))
    epochs = [order(first), order(first)]
    assert [order(twin), order(twin)] == epochs
    assert epochs[0] != epochs[1] and sorted(epochs[0]) == sorted(epochs[1]) == sorted(order(data.loader(images, 8)))
    assert order(data.loader(images, 8, shuffle=True, seed=6)) != epochs[0]
    torch.manual_seed(99)
    assert order(data.loader(images, 8, shuffle=True, seed=5)) == epochs[0]


def test_without_shuffle_the_order_is_the_sets(images):
    labels = torch.cat([y for _, y in data.loader(images, 8)])
    assert labels.tolist() == images.labels.tolist()


def test_drop_last(images):
    assert [len(y) for _, y in data.loader(images, 8, drop_last=True)] == [8] * 4
    assert [len(y) for _, y in data.loader(images, 8)] == [8] * 4 + [5]


def test_a_sampler_decides(images):
    sampler = DistributedSampler(images, num_replicas=2, rank=1, shuffle=False)
    got = torch.cat([x for x, _ in data.loader(images, 5, sampler=sampler)])
    assert torch.equal(got, torch.stack([images[place % 37][0] for place in range(1, 38, 2)]))


def test_workers_give_the_same_batches(images):
    alone, helped = (list(data.loader(images, 8, shuffle=True, seed=1, workers=workers)) for workers in (0, 2))
    assert len(alone) == len(helped) == 5
    for (x, y), (other_x, other_y) in zip(alone, helped, strict=True):
        assert torch.equal(x, other_x) and torch.equal(y, other_y)


@pytest.mark.parametrize(("free", "ranks", "expected"), [(43199, 1, 1), (43200, 2, 1), (21599, 1, 0)])
def test_little_shared_memory_means_fewer_workers(images, monkeypatch, capsys, free, ranks, expected):
    # A batch is 30 images of 60 floats: 7,200 bytes, three of them for each worker.
    monkeypatch.setattr(os, "statvfs", lambda path: SimpleNamespace(f_bavail=free, f_frsize=1))
    for name, value in (("RANK", 0), ("WORLD_SIZE", ranks), ("LOCAL_RANK", 0), ("LOCAL_WORLD_SIZE", ranks)):
        monkeypatch.setenv(name, str(value))
    assert data.loader(images, 30, workers=2).num_workers == expected
    said = capsys.readouterr().err
    assert "/dev/shm" in said and f"using {expected}" in said and "--shm-size" in said
    monkeypatch.setattr(os, "statvfs", lambda path: SimpleNamespace(f_bavail=43200 * ranks, f_frsize=1))
    assert data.loader(images, 30, workers=2).num_workers == 2 and capsys.readouterr().err == ""


@pytest.mark.parametrize("n", [*range(14), 21, 100])
def test_shards_cover_every_sample_once(n):
    places = list(range(n))
    for world_size in range(1, 10):
        shards = [list(data.shard(places, rank, world_size)) for rank in range(world_size)]
        assert sorted(sum(shards, [])) == places
        sizes = [len(shard) for shard in shards]
        assert sum(sizes) == n and max(sizes) - min(sizes) <= 1


def test_21_samples():
    assert [len(data.shard(range(21), rank, 2)) for rank in range(2)] == [11, 10]
    assert [len(data.shard(range(21), rank, 3)) for rank in range(3)] == [7, 7, 7]


def test_a_shard_batches_like_its_samples(images):
    mine = data.shard(images, 2, 4)
    x, y = next(iter(data.loader(mine, 100)))
    assert torch.equal(x, torch.stack([images[place][0] for place in range(2, 37, 4)]))
    assert y.tolist() == [place % 3 for place in range(2, 37, 4)]
    assert torch.equal(mine[1][0], images[6][0])


def test_an_empty_shard_has_no_batch(images):
    assert list(data.loader(data.shard(images, 40, 50), 8)) == []


@pytest.mark.parametrize(("rank", "world_size"), [(2, 2), (-1, 2), (0, 0)])
def test_a_rank_outside_its_world_is_refused(images, rank, world_size):
    with pytest.raises(ValueError, match=f"rank {rank} lies outside a world of {world_size}"):
        data.shard(images, rank, world_size)


def test_more_ranks_than_samples():
    data.require_samples(8, 8)
    with pytest.raises(ValueError, match="^8 ranks cannot share 5 samples: start at most 5 or give more data$"):
        data.require_samples(5, 8)


def test_three_batches_wait_at_most():
    # What the reckoning of shared memory rests on: torch lets each worker be two batches ahead.
    assert DataLoader([1], num_workers=1).prefetch_factor + 1 == batches.BATCHES_PER_WORKER
