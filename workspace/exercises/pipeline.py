"""Exercise: one model on four ranks, a stage on each.

run("exercises/pipeline.py")    # in the notebook: two hosts, two ranks each
check("pipeline")               # says what is missing, one step at a time

As it stands, each rank trains the whole model by itself. The TODOs are numbered in the order in which to
do them. What they name is in torch.distributed.pipelining.
"""

import itertools

import torch
from distlab import data, process
from torch import Tensor, nn
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
    # TODO 1: here one stage has all layers. Layers are not equally slow, so equally many are not the answer.
    # What is the slowest stage of a split, and which of all splits has the quickest one?
    return [len(costs)] + [0] * (stages - 1)


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
    # TODO 2: these are all layers. Keep those of this rank's stage, as split(costs, ...) has it. A slice
    # model[first:end] is a Sequential of the same layers.
    part = model.to(me.message_device)

    # TODO 3: make the part one stage of the pipeline (PipelineStage). Which stage is it, of how many, and on
    # which device?

    # TODO 4: choose a schedule (Schedule1F1B, ScheduleGPipe and others) and a number of microbatches. While
    # stages take equally long, ranks are to be idle for at most 20 % of a step, and at no time may a rank
    # keep activations of more than 8 of the 32 samples. The loss is cross_entropy, a mean over samples.

    # TODO 5: parameters of other stages are updated on other ranks.
    optimizer = torch.optim.SGD(model.parameters(), lr=lr)

    means = []
    for x, y in batches:
        x, y = x.to(me.message_device), y.to(me.message_device)
        optimizer.zero_grad()
        # TODO 6: let the schedule take the step, which does forward and backward of all microbatches. Every rank
        # calls it. Who gives it the pixels, who the targets, and who can get the losses?
        loss = cross_entropy(part(x / 255), y)
        loss.backward()
        optimizer.step()

        # TODO 7: the mean loss of the batch is known on one rank only. Hand it to the others (torch.distributed).
        means.append(loss.item())
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
