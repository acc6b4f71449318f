"""Small trainings that run alike in one process and on ranks, for tests to compare."""

import contextlib
import io
from pathlib import Path

import numpy as np
import torch
from distlab import checkpoint, data, loop, models, process
from distlab.loop.tally import averages
from torch import nn
from torch.distributed.algorithms.ddp_comm_hooks.default_hooks import allreduce_hook
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import Dataset, DistributedSampler

ALONE = process.Rank(0, 1, 0, 1, 0, "node1", "none", torch.device("cpu"), None, "")


class Samples(Dataset):
    """Random images (1, 6, 6), each of the class whose two rows are brightest. Remembers what was asked for."""

    def __init__(self, size: int, seed: int = 0) -> None:
        self.images = torch.randn(size, 1, 6, 6, generator=torch.Generator().manual_seed(seed))
        self.labels = self.images.reshape(size, 3, 12).sum(2).argmax(1)
        self.asked: list[int] = []

    def __len__(self) -> int:
        return len(self.labels)

    def __getitem__(self, index: int) -> tuple[torch.Tensor, torch.Tensor]:
        self.asked.append(index)
        return self.images[index], self.labels[index]


def network(dropout: float = 0.0, seed: int = 3) -> nn.Module:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return nn.Sequential(nn.Flatten(), nn.Linear(36, 16), nn.ReLU(), nn.Dropout(dropout), nn.Linear(16, 3))


def weights(model: nn.Module) -> np.ndarray:
    return torch.cat([weight.detach().reshape(-1) for weight in models.unwrap(model).parameters()]).numpy()


def train(
    me: process.Rank,
    *words: object,
    size: int = 48,
    dropout: float = 0.0,
    peak: float | None = None,
    spoilt: tuple[int, ...] = (),
    model: nn.Module | None = None,
) -> dict:
    """Train on `Samples` with the options in `words`; what came of it on this rank.

    Args:
        peak: learning rate of the optimizer, instead of the scaled one.
        spoilt: samples that are made NaN.
    """
    args = loop.options().parse_args(["--lr", "0.1", *map(str, words)])
    samples, held_out = Samples(size), Samples(21, seed=1)
    for index in spoilt:
        samples.images[index] = float("nan")
    model = model or network(dropout)
    sent, rates = [], []
    if me.backend:
        sampler = DistributedSampler(samples, me.world_size, me.rank, seed=args.seed)
        held_out = data.shard(held_out, me.rank, me.world_size)
        model = DistributedDataParallel(model)

        def counted(state, bucket):
            sent.append(1)
            return allreduce_hook(state, bucket)

        model.register_comm_hook(None, counted)
    else:
        sampler = loop.Shuffle(samples, seed=args.seed)

    def step(model, optimizer, images, labels, share, update):
        if update:
            rates.append(optimizer.param_groups[0]["lr"])
        return loop.train_step(model, optimizer, images, labels, share, update)

    batches = data.loader(samples, args.batch_size, sampler=sampler)
    rate = peak or loop.scaled_lr(args, me.world_size)
    optimizer = torch.optim.SGD(model.parameters(), lr=rate, momentum=0.9)
    said = io.StringIO()
    with contextlib.redirect_stdout(said):
        records = loop.fit(me, model, optimizer, batches, data.loader(held_out, 8), args, step=step)
    return {
        "records": records,
        "weights": weights(model),
        "asked": samples.asked,
        "rates": rates,
        "sent": len(sent),
        "said": said.getvalue(),
    }


def totals_of_validation(me: process.Rank) -> list[float]:
    held_out = Samples(21, seed=1)
    part = data.shard(held_out, me.rank, me.world_size) if me.backend else held_out
    return loop.evaluate(network(), data.loader(part, 4), me.device)


def accuracy_of_normalised(me: process.Rank) -> list[float]:
    """Validation of a wrapped network with batch normalisation whose running statistics differ between ranks."""
    net = nn.Sequential(nn.Flatten(), nn.BatchNorm1d(36), network()[1:])
    net[1].running_mean += 0.3 * (1 + me.rank)
    held_out = Samples(21, seed=1)
    if me.backend:
        net, held_out = DistributedDataParallel(net), data.shard(held_out, me.rank, me.world_size)
        models.unwrap(net)[1].running_mean.fill_(0.3 * (1 + me.rank))
    return list(averages(loop.evaluate(net, data.loader(held_out, 4), me.device)))


def caught(job, *arguments, **options) -> str:
    try:
        job(*arguments, **options)
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    return "nothing raised"


def two_ranks(folder: Path) -> dict:
    """All that tests want to know from a group of two."""
    with process.group() as me:
        damaged = folder / "damaged.pt"
        elsewhere = folder / f"only-on-rank-{me.rank}.pt"
        if me.is_main:
            damaged.write_bytes(b"PK not a checkpoint")
        whole = ("--batch-size", 8, "--epochs", 2, "--warmup-epochs", 1)
        return {
            "whole": train(me, *whole, "--checkpoint", folder / "whole.pt"),
            "padded": train(me, "--batch-size", 4, "--lr", 1e-12, "--no-lr-scaling", size=21),
            "accumulated": train(me, "--batch-size", 4, "--accumulate", 2, "--no-lr-scaling", size=44),
            "validation": totals_of_validation(me),
            "normalised": accuracy_of_normalised(me),
            "uninterrupted": train(me, "--batch-size", 4, "--epochs", 2, dropout=0.3),
            "first part": train(
                me, "--batch-size", 4, "--epochs", 2, "--max-steps", 3, "--checkpoint", elsewhere, dropout=0.3
            ),
            "second part": train(me, "--batch-size", 4, "--epochs", 2, "--resume", elsewhere, dropout=0.3),
            "every": train(
                me, "--batch-size", 4, "--max-steps", 5, "--checkpoint-every", 2, "--checkpoint", folder / "every.pt"
            ),
            "on 2 after 1": train(me, "--batch-size", 4, "--resume", folder / "of one.pt"),
            "damaged": caught(train, me, "--resume", damaged),
            "missing": caught(train, me, "--resume", folder / "nothing.pt"),
            "other size": caught(train, me, "--resume", folder / "of one.pt", size=40),
            "shared": loop.Collectives().broadcast(f"from {me.rank}"),
            "gathered": loop.Collectives().all_gather(f"from {me.rank}"),
            "failed on main": caught(loop.Collectives().from_main, me.is_main, lambda: int("none")),
        }


def three_ranks(folder: Path) -> dict:
    """All that tests want to know from a group of three."""
    with process.group() as me:
        return {
            "padded": train(me, "--batch-size", 4, "--lr", 1e-12, "--no-lr-scaling", size=22),
            "validation": totals_of_validation(me),
            "on 3 after 2": train(me, "--batch-size", 2, "--resume", folder / "only-on-rank-0.pt", "--epochs", 2),
            "uneven": train(me, "--batch-size", 2, "--resume", folder / "of one, 50.pt", size=50),
        }


def one_sees_nan(folder: Path) -> None:
    """Rank 1's part of the second update holds a sample that is no number."""
    with process.group() as me:
        order = list(loop.Shuffle(Samples(48)))
        # Global places 8 to 15 make the second update; rank 1 has the odd ones.
        train(me, "--batch-size", 4, "--checkpoint", folder / "nan.pt", "--checkpoint-every", 1, spoilt=(order[11],))


def read_weights(path: Path) -> np.ndarray:
    return torch.cat([value.reshape(-1) for value in checkpoint.read(path)["model"].values()]).numpy()
