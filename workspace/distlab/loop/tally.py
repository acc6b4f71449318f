"""Sums of loss, hits and samples, divided only when all ranks are added up."""

import torch
from torch import Tensor
from torch.nn import functional as F

from distlab import process
from distlab.loop.collectives import Collectives


class Tally:
    """Loss and hits summed over samples, on the device: reading a number from a GPU would wait for it.

    A mean of means would weigh the last, smaller batch of a rank like a full one.
    """

    def __init__(self, device: torch.device) -> None:
        self.sums = torch.zeros(3, dtype=torch.float64, device=device)

    def add(self, loss: Tensor, logits: Tensor | None, labels: Tensor, real: int) -> None:
        """Add a batch.

        Args:
            loss: mean over the batch.
            logits: (n, classes), or (n, classes, T) for T labels of each sample, or None to add nothing.
            real: samples of the batch to count, from its beginning; the others are padding.
        """
        if logits is None or real == 0:
            return
        if real < len(labels):
            logits, labels = logits[:real], labels[:real]
            loss = F.cross_entropy(logits, labels)
        self.sums[0] += loss * real
        right = (logits.argmax(1) == labels).double()
        self.sums[1] += right.reshape(real, -1).mean(1).sum()
        self.sums[2] += real

    def totals(self, collectives: Collectives, before: list[float] | None = None) -> list[float]:
        """[sum of losses, hits, samples] over all ranks, and over what an interrupted run had `before`."""
        sums = collectives.all_reduce(self.sums).tolist()
        return [now + earlier for now, earlier in zip(sums, before or [0.0] * 3, strict=True)]


def averages(totals: list[float]) -> tuple[float, float]:
    """Mean loss and accuracy from [sum of losses, hits, samples]; NaN without samples."""
    loss, hits, samples = totals
    return (loss / samples, hits / samples) if samples else (float("nan"), float("nan"))


class Clock:
    """Images per second of training, without the first update.

    The first one also pays for imports, memory and the choice of algorithms. It counts when it is the
    only one.
    """

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._start = process.now(device)
        self._first: tuple[int, float] | None = None
        self.images, self.seconds = 0, 0.0

    def updated(self, images: int) -> None:
        """One update with so many images of this rank is done."""
        self.images += images
        if self._first is None:
            self._first = (self.images, process.now(self._device))

    def stop(self) -> tuple[float, float]:
        """Stop; return seconds in all, and images per second of this rank."""
        end = process.now(self._device)
        self.seconds = end - self._start
        images, since = self._first or (0, self._start)
        if images == self.images:
            images, since = 0, self._start
        return self.seconds, (self.images - images) / max(end - since, 1e-9)
