"""The learning rate of a large batch.

k ranks average the gradients of k batches, so one update sees k times the samples and an epoch
has k times fewer updates. To get as far in an epoch, each has to go k times as far: learning
rate k * lr. In the first updates, where gradients change fast, such a step overshoots: so the rate
rises linearly from lr to k * lr.

Linear scaling and gradual warm-up: Goyal et al. 2017, arXiv 1706.02677, sections 2.1 and 2.2.
"""

import argparse

from torch.optim import Optimizer


def scaled_lr(args: argparse.Namespace, ranks: int) -> float:
    """--lr times the batches in one update (ranks * --accumulate), or --lr itself with --no-lr-scaling."""
    return args.lr * ranks * args.accumulate if args.lr_scaling else args.lr


class WarmUp:
    """Raises an optimizer's rates from `base` to those it was made with, then leaves them there.

    A function of the position in epochs, not of the number of updates, so a run can resume on another
    number of ranks.
    """

    def __init__(self, optimizer: Optimizer, base: float, epochs: float) -> None:
        self.optimizer, self.base, self.epochs = optimizer, base, epochs
        self.peaks = [float(group["lr"]) for group in optimizer.param_groups]

    def at(self, position: float) -> list[float]:
        """The rate of each parameter group after `position` epochs.

        >>> from torch import nn, optim
        >>> rate = WarmUp(optim.SGD(nn.Linear(1, 1).parameters(), lr=0.4), base=0.1, epochs=2)
        >>> [rate.at(position)[0] for position in (0, 1, 2, 3)]
        [0.1, 0.25, 0.4, 0.4]
        """
        if position >= self.epochs:
            return self.peaks
        risen = position / self.epochs
        return [peak if peak <= self.base else self.base + (peak - self.base) * risen for peak in self.peaks]

    def set(self, position: float) -> float:
        """Give the optimizer its rates for the update after `position` epochs; return the first."""
        rates = self.at(position)
        for group, rate in zip(self.optimizer.param_groups, rates, strict=True):
            group["lr"] = rate
        return rates[0]
