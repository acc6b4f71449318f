"""Calls the attendee's `device_for` and `train` in every rank and reports what they did.

Ranks start from different seeds, the net has a tied and a frozen parameter, and rank 0 trains a
twin: one process that takes the batches of all ranks as one.
"""

import copy
import functools
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import TensorDataset

from distlab import report
from distlab.checks import devices
from distlab.checks.probe import Attempt
from distlab.checks.replica import Batches, Net, apart, as_number, samples, train_alone, trained, weights
from distlab.checks.saving import Saves, saved
from distlab.process import Placement, run_folder
from distlab.process.meeting import gather_cards, open_store

PER_RANK, BATCH_SIZE, EPOCHS, LR = 16, 6, 3, 0.1


class Ledger(Batches):
    """What `train` does, seen from the net and from torch's own functions."""

    def __init__(self, x: Tensor, y: Tensor) -> None:
        super().__init__(x, y)
        self.group = 0
        self.wrapped = False
        self.saves = Saves()

    def forward(self, net: nn.Module, inputs: tuple, logits: Tensor) -> None:
        """A hook of the net."""
        if torch.is_grad_enabled():
            self.see(inputs, logits)
            self.group = dist.get_world_size() if dist.is_initialized() else 0

    def listen(self) -> None:
        """Notice wrapping and saving, however the attendee imports them."""
        self.saves.listen()
        wrap = DistributedDataParallel.__init__

        @functools.wraps(wrap)
        def wraps(this: DistributedDataParallel, *args: Any, **kwargs: Any) -> None:
            self.wrapped = True
            wrap(this, *args, **kwargs)

        DistributedDataParallel.__init__ = wraps  # type: ignore[assignment]  # takes the same without its names


def observe(me: Placement, attempt: Attempt) -> None:
    """Run the attendee's functions and report."""
    n = PER_RANK * me.world_size
    x, y = samples(n)
    ledger = Ledger(x, y)
    ledger.listen()
    path = run_folder() / "attempt.pt"
    with attempt.watched():
        attempt.load()
        device_for = attempt.function("device_for", "rank", "local_rank")
        train = attempt.function("train", "dataset", "model", "epochs", "batch_size", "lr", "checkpoint")
        choices = devices.choices(lambda rank, local_rank: device_for(rank=rank, local_rank=local_rank))
        report.log(me, "device", choices=choices)
        torch.manual_seed(me.rank)
        net = Net()
        start = copy.deepcopy(net)
        net.register_forward_hook(ledger.forward)
        returned = train(
            dataset=TensorDataset(x, y), model=net, epochs=EPOCHS, batch_size=BATCH_SIZE, lr=LR, checkpoint=path
        )
    report.log(
        me,
        "trained",
        samples=n,
        epochs=EPOCHS,
        batch_size=BATCH_SIZE,
        local_rank=me.local_rank,
        batches=ledger.batches,
        losses=ledger.losses,
        **as_number(returned),
        group=ledger.group,
        group_left=not dist.is_initialized(),
        wrapped=ledger.wrapped,
        saves=ledger.saves.count,
    )
    cards = gather_cards(open_store(me), me, {"batches": ledger.batches, "weights": weights(net).tolist()})
    if me.rank == 0:
        ends = [torch.tensor(card["weights"]) for card in cards]
        train_alone(start, torch.optim.SGD(trained(start), lr=LR), x, y, [card["batches"] for card in cards])
        report.log(
            me,
            "compared",
            to_rank_0=[apart(end, ends[0]) for end in ends],
            to_twin=apart(ends[0], weights(start)),
            checkpoint=saved(path, net),
        )


def main() -> None:
    """PROBE FILE SECONDS"""
    attempt = Attempt.asked_for()
    observe(attempt.me, attempt)


if __name__ == "__main__":
    main()
