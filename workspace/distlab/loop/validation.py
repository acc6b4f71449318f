"""Validation on all ranks, each sample counted once."""

import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader

from distlab.loop.collectives import Collectives
from distlab.loop.tally import Tally
from distlab.models import unwrap


def _use_buffers_of_rank_0(net: nn.Module, collectives: Collectives) -> None:
    buffers = list(net.buffers())
    if buffers:
        shared = collectives.broadcast([buffer.cpu() for buffer in buffers])
        for own, value in zip(buffers, shared, strict=True):
            own.copy_(value)


def evaluate(
    model: nn.Module, val: DataLoader, device: torch.device, collectives: Collectives | None = None
) -> list[float]:
    """[sum of losses, hits, samples] over the validation samples of all ranks.

    Each rank brings its own part (`data.shard`), of any size: the forward pass uses the network without
    its DDP wrapper, which would wait for other ranks. Running statistics of batch
    normalisation differ between ranks; those of rank 0 are used, which a checkpoint holds too.
    """
    collectives = collectives or Collectives()
    net = unwrap(model)
    tally, was_training = Tally(device), net.training
    net.eval()
    with torch.no_grad():
        if net is not model:
            _use_buffers_of_rank_0(net, collectives)
        for images, labels in val:
            images, labels = images.to(device, non_blocking=True), labels.to(device, non_blocking=True)
            logits = net(images)
            # Of the ranks of a pipeline only the last one has logits.
            if logits is not None:
                tally.add(F.cross_entropy(logits, labels), logits, labels, len(labels))
    net.train(was_training)
    return tally.totals(collectives)
