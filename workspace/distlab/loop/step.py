"""One training step: the part of the loop that a lesson may replace."""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, nullcontext
from typing import Protocol, TypeAlias, runtime_checkable

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.optim import Optimizer
from torch.utils.data import DataLoader

from distlab.errors import DistlabError

Batch: TypeAlias = tuple[Tensor, Tensor]
# (model, optimizer, images, labels, share, update) -> (mean loss, logits or None)
Step: TypeAlias = Callable[[nn.Module, Optimizer, Tensor, Tensor, float, bool], tuple[Tensor, Tensor | None]]


@runtime_checkable
class Syncing(Protocol):
    """A model that can leave out its all-reduce for a while, such as DistributedDataParallel."""

    def no_sync(self) -> AbstractContextManager[None]:
        """Within it, gradients stay this rank's own."""
        ...


class LossError(DistlabError, FloatingPointError):
    """The loss is infinite or no number; says on which rank, in which epoch and step."""


class NotFinite(DistlabError, ArithmeticError):
    """The loss is infinite or no number; its text is the loss. `fit` makes a `LossError` of it."""


def require_finite(loss: Tensor) -> None:
    """Stop before the backward pass of such a loss: all-reduce would spread its gradients to every rank.

    Raises:
        NotFinite: `fit` adds rank, epoch and step.
    """
    if not torch.isfinite(loss):
        raise NotFinite(str(loss.item()))


def train_step(
    model: nn.Module, optimizer: Optimizer, images: Tensor, labels: Tensor, share: float, update: bool
) -> tuple[Tensor, Tensor | None]:
    """Forward, loss, backward and, at the end of an update's batches, the update.

    Args:
        images: (n, C, H, W) on the model's device; labels (n,).
        share: this batch's share of the update's samples; 1 without accumulation.
        update: False while more batches of the same update follow.

    Returns:
        The mean cross-entropy and the logits (n, classes). A step of a rank that has no logits
        returns None for them, and the loop leaves it out of loss and accuracy.
    """
    logits = model(images)
    loss = F.cross_entropy(logits, labels)
    require_finite(loss)
    (loss * share).backward()
    if update:
        optimizer.step()
        optimizer.zero_grad()
    return loss.detach(), logits.detach()


def no_sync_unless(last: bool, model: nn.Module) -> AbstractContextManager:
    """DDP's `no_sync` while more batches of the same update follow: gradients are all-reduced once per update."""
    return nullcontext() if last or not isinstance(model, Syncing) else model.no_sync()


def updates(train: DataLoader, accumulate: int) -> Iterator[list[Batch]]:
    """The batches of each update: `accumulate` of them, fewer at the end of an epoch."""
    batches: list[Batch] = []
    for batch in train:
        batches.append(batch)
        if len(batches) == accumulate:
            yield batches
            batches = []
    if batches:
        yield batches
