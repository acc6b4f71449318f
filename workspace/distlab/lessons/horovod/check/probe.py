"""Calls the attendee's `device_for` and `train` in every rank of Horovod and reports what they did.

Ranks start from different seeds, the net has a tied and a frozen parameter, rank 0 alone has a state
for the optimizer, and trains a twin: one process that takes the batches of all ranks as one.
"""

import copy
import functools
import inspect
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.data import TensorDataset

from distlab import report
from distlab.checks import devices
from distlab.checks.probe import Attempt
from distlab.checks.replica import Batches, Net, apart, as_number, samples, train_alone, trained, weights
from distlab.checks.saving import Saves, saved
from distlab.process import Placement, run_folder
from distlab.process.meeting import gather_cards, keep_until_all_have_read, open_store

PER_RANK, BATCH_SIZE, EPOCHS, LR, MOMENTUM = 16, 6, 3, 0.02, 0.9
# The momentum that rank 0 brings: no gradient looks like it.
BROUGHT = 0.25


class Ledger(Batches):
    """What `train` does, seen from the net, from SGD and from Horovod's own functions."""

    def __init__(self, x: Tensor, y: Tensor) -> None:
        super().__init__(x, y)
        self.group = 0
        self.called: list[str] = []
        # Learning rates of the steps, as they were asked to be scaled and as they were not.
        self.rates: list[float] = []
        self.rates_unscaled: list[float] = []
        self.again = False
        self.first: dict[str, list[float] | None] = {}
        self.saves = Saves()
        # The local rank for which `train` asked for a device.
        self.asked: int | None = None

    def forward(self, net: nn.Module, inputs: tuple, logits: Tensor) -> None:
        """A hook of the net."""
        if self.again or not torch.is_grad_enabled():
            return
        import horovod.torch as hvd

        self.first.setdefault("weights", weights(net).tolist())
        self.see(inputs, logits)
        self.group = hvd.size() if hvd.is_initialized() else 0

    def step(self, optimizer: torch.optim.SGD) -> None:
        """Called before each step of SGD. Horovod makes one of its own before training, to fill a state."""
        if not self.batches:
            return
        (self.rates_unscaled if self.again else self.rates).append(float(optimizer.param_groups[0]["lr"]))
        held = [p for group in optimizer.param_groups for p in group["params"] if p.grad is not None]
        self.first.setdefault("gradients", torch.cat([p.grad.flatten() for p in held]).tolist() if held else [])
        brought = [optimizer.state[p].get("momentum_buffer") for p in held]
        lacking = not held or any(momentum is None for momentum in brought)
        flat = None if lacking else torch.cat([momentum.flatten() for momentum in brought]).tolist()
        self.first.setdefault("momentum", flat)

    def asks(self, device_for: Callable) -> Callable:
        """The attendee's `device_for`, and what it is asked for."""

        @functools.wraps(device_for)
        def asked(*args: Any, **kwargs: Any) -> object:
            self.asked = inspect.signature(device_for).bind(*args, **kwargs).arguments.get("local_rank")
            return device_for(*args, **kwargs)

        return asked

    def listen(self) -> None:
        """Notice steps, saving and what is asked of Horovod, however the attendee imports it."""
        import horovod.torch as hvd

        self.saves.listen()
        step = torch.optim.SGD.step

        @functools.wraps(step)
        def steps(optimizer: torch.optim.SGD, *args: Any, **kwargs: Any) -> object:
            self.step(optimizer)
            return step(optimizer, *args, **kwargs)

        torch.optim.SGD.step = steps  # type: ignore[assignment]  # torch's parameter is called self
        for name in ("DistributedOptimizer", "broadcast_parameters", "broadcast_optimizer_state"):
            self._notice(hvd, name)
        # Who leaves at the end of train may: the probe still needs the group, which cannot be made twice.
        hvd.shutdown = lambda: None

    def _notice(self, hvd: object, name: str) -> None:
        original = getattr(hvd, name)

        @functools.wraps(original)
        def noticed(*args: Any, **kwargs: Any) -> object:
            if not self.again:
                self.called.append(name)
            return original(*args, **kwargs)

        setattr(hvd, name, noticed)


def state_of_rank_0(net: nn.Module) -> dict:
    """What an optimizer has after some training, with the rate of another day."""
    optimizer = torch.optim.SGD(trained(net), lr=1e-5, momentum=MOMENTUM)
    for parameter in trained(net):
        optimizer.state[parameter]["momentum_buffer"] = torch.full_like(parameter, BROUGHT)
    return copy.deepcopy(optimizer.state_dict())


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
        arguments = ("dataset", "model", "state", "epochs", "batch_size", "lr", "scale_lr", "checkpoint")
        train = attempt.function("train", *arguments)
        choices = devices.choices(lambda rank, local_rank: device_for(rank=rank, local_rank=local_rank))
        report.log(me, "device", choices=choices)
        attempt.replace("device_for", ledger.asks(device_for))
        torch.manual_seed(me.rank)
        net = Net()
        start, state = copy.deepcopy(net), state_of_rank_0(net)
        net.register_forward_hook(ledger.forward)
        given = {"dataset": TensorDataset(x, y), "batch_size": BATCH_SIZE, "lr": LR}
        brought = copy.deepcopy(state) if me.rank == 0 else None
        returned = train(model=net, state=brought, epochs=EPOCHS, scale_lr=True, checkpoint=path, **given)
        saves, ledger.again = ledger.saves.count, True
        train(model=Net(), state=None, epochs=1, scale_lr=False, checkpoint=run_folder() / "again.pt", **given)
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
        asked=ledger.asked,
        called=ledger.called,
        lr=LR,
        rates=ledger.rates,
        rates_unscaled=ledger.rates_unscaled,
        saves=saves,
    )
    card = {"batches": ledger.batches, "weights": weights(net).tolist(), "first": ledger.first}
    store = open_store(me)
    cards = gather_cards(store, me, card)
    if me.rank == 0:
        report.log(me, "compared", **compare(cards, start, state, x, y), checkpoint=saved(path, net))
    keep_until_all_have_read(store, me)


def compare(cards: list[dict], start: nn.Module, state: dict, x: Tensor, y: Tensor) -> dict:
    """Ranks against rank 0, and rank 0 against one process: largest differences, None where there is nothing."""
    begin = weights(start)
    twin = torch.optim.SGD(trained(start), lr=LR * len(cards), momentum=MOMENTUM)
    twin.load_state_dict(state)
    twin.param_groups[0]["lr"] = LR * len(cards)
    train_alone(start, twin, x, y, [card["batches"] for card in cards])

    def differences(of: str, to: Tensor | None = None) -> list[float | None]:
        found = [card["first"].get(of) for card in cards]
        right = to if to is not None else torch.tensor(found[0] or [])
        fits = [vector is not None and len(vector) == len(right) for vector in found]
        return [apart(torch.tensor(vector), right) if fit else None for vector, fit in zip(found, fits, strict=True)]

    ends = [torch.tensor(card["weights"]) for card in cards]
    momentum = torch.full([sum(p.numel() for p in trained(start))], BROUGHT)
    return {
        "began": differences("weights", begin),
        "gradients": differences("gradients"),
        "momentum": differences("momentum", momentum),
        "to_rank_0": [apart(end, ends[0]) for end in ends],
        "to_twin": apart(ends[0], weights(start)),
    }


def main() -> None:
    """PROBE FILE SECONDS"""
    attempt = Attempt.asked_for()
    observe(attempt.me, attempt)


if __name__ == "__main__":
    main()
