"""Solution: one model on four ranks, a stage on each.

run("solutions/pipeline.py")                        # in the notebook: two hosts, two ranks each
check("pipeline", file="solutions/pipeline.py")     # every requirement holds
"""

import itertools

import torch
import torch.distributed as dist
from distlab import data, process
from torch import Tensor, nn
from torch.distributed.pipelining import PipelineStage, Schedule1F1B
from torch.nn.functional import cross_entropy

BATCH_SIZE = 32
# Numbers that go into each layer, and out of the last one.
WIDTHS = [784, 64, 64, 512, 64, 64, 512, 64, 10]


def split(costs: list[float], stages: int) -> list[int]:
    """Cut layers into stages so that the slowest stage takes as little time as it can.

    Args:
        costs: time of each layer, in any unit.
        stages: from 1 to as many as there are layers.

    Returns:
        How many layers each stage gets. Layers stay in their order, and each stage has at least one.
    """

    def ends(cuts: tuple[int, ...]) -> list[tuple[int, int]]:
        return list(itertools.pairwise((0, *cuts, len(costs))))

    def slowest(cuts: tuple[int, ...]) -> float:
        return max(sum(costs[first:end]) for first, end in ends(cuts))

    # A few hundred ways for a dozen layers; a hundred layers have too many to try them all.
    best = min(itertools.combinations(range(1, len(costs)), stages - 1), key=slowest)
    return [end - first for first, end in ends(best)]


def train(
    me: process.Rank, model: nn.Sequential, costs: list[float], batches: list[tuple[Tensor, Tensor]], lr: float
) -> list[float]:
    """Train a model that is cut into stages over all ranks, as one process would train it.

    Every rank calls this with the same model, and with the same batches.

    Args:
        me: this rank. Messages between ranks go from and to its `message_device`.
        model: the same weights on every rank, on the CPU.
        costs: time of each layer of the model, in any unit.
        batches: pairs of pixels (BATCH_SIZE, numbers) from 0 to 255, which the model takes from 0 to 1, and
            targets (BATCH_SIZE,). The caller goes on using them.
        lr: learning rate of plain SGD.

    Returns:
        Mean loss of each batch, from before its update: the same numbers on every rank.
    """
    layers = split(costs, me.world_size)
    first = sum(layers[: me.rank])
    part = model[first : first + layers[me.rank]].to(me.message_device)

    stage = PipelineStage(part, me.rank, me.world_size, me.message_device)

    schedule = Schedule1F1B(stage, n_microbatches=16, loss_fn=cross_entropy)

    optimizer = torch.optim.SGD(part.parameters(), lr=lr)

    means = []
    for x, y in batches:
        x, y = x.to(me.message_device), y.to(me.message_device)
        optimizer.zero_grad()
        losses: list[Tensor] = []
        pixels = [x / 255] if stage.is_first else []
        targets = {"target": y, "losses": losses} if stage.is_last else {}
        schedule.step(*pixels, **targets)
        optimizer.step()

        mean = torch.stack(losses).detach().mean() if stage.is_last else torch.zeros((), device=me.message_device)
        dist.broadcast(mean, src=me.world_size - 1)
        means.append(mean.item())
    return means


def build(seed: int) -> nn.Sequential:
    """The network: a layer for each pair of widths that follow each other."""
    torch.manual_seed(seed)
    first, *others = itertools.pairwise(WIDTHS)
    layers = [nn.Sequential(nn.LayerNorm(into), nn.Tanh(), nn.Linear(into, out)) for into, out in others]
    return nn.Sequential(nn.Linear(*first), *layers)


def main() -> None:
    """Train on real images for two epochs. Rank 0 prints the mean loss of each."""
    with process.group() as me:
        images = data.load("fashion-mnist", limit=1280, me=me).train
        mixed = torch.randperm(len(images), generator=torch.Generator().manual_seed(0))
        batches = [
            (images.pixels(places).flatten(1).float(), images.labels[places])
            for places in mixed.split(BATCH_SIZE)
            if len(places) == BATCH_SIZE
        ]
        # Almost all time of a layer is that of its products, one for each weight and sample.
        costs = [float(into * out) for into, out in itertools.pairwise(WIDTHS)]
        # One seed: each rank keeps its own part of the same model.
        losses = train(me, build(seed=0), costs, batches * 2, lr=0.01)
        for epoch in range(2):
            own = losses[epoch * len(batches) :][: len(batches)]
            me.print(f"epoch {epoch}: loss {sum(own) / len(own):.4f}")


if __name__ == "__main__":
    main()
