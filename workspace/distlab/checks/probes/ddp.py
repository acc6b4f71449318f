"""Calls the attendee's `device_for` and `train` in every rank and reports what they did.

Ranks start from different seeds, the net has a tied and a frozen parameter, and rank 0 trains a
twin: one process that takes the batches of all ranks as one.
"""

import copy
import functools
import os
import sys
from contextlib import ExitStack
from unittest import mock

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.functional import cross_entropy
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import TensorDataset

from distlab import report
from distlab.checks.probe import Attempt
from distlab.process import Placement, read_placement, run_folder
from distlab.process.meeting import gather_cards, open_store

PER_RANK, BATCH_SIZE, EPOCHS, LR = 16, 6, 3, 0.1
FEATURES, HIDDEN, CLASSES = 20, 12, 5
GPUS = 2
# (rank, local_rank) on hosts of two ranks each, and where a host of one rank comes first.
SEATS = [(0, 0), (1, 1), (2, 0), (3, 1), (1, 0), (2, 1)]


class Net(nn.Module):
    """(N, FEATURES) to logits (N, CLASSES). Two layers share a weight, and `scale` is frozen."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(FEATURES, HIDDEN)
        self.second = nn.Linear(HIDDEN, HIDDEN)
        self.third = nn.Linear(HIDDEN, HIDDEN)
        self.third.weight = self.second.weight
        self.scale = nn.Parameter(torch.rand(HIDDEN) + 0.5, requires_grad=False)
        self.head = nn.Linear(HIDDEN, CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        for layer in (self.first, self.second, self.third):
            x = torch.tanh(layer(x.flatten(1)))
        return self.head(x * self.scale)


class Watch:
    """What `train` does, seen from the net and from torch's own functions."""

    def __init__(self, x: Tensor, y: Tensor) -> None:
        self.x, self.y = x, y
        self.batches: list[list[int]] = []
        self.losses: list[float] = []
        self.group = 0
        self.wrapped = False
        self.saves = 0

    def forward(self, net: nn.Module, inputs: tuple, logits: Tensor) -> None:
        """A hook of the net. Samples are told by their values, so any loader will do."""
        if not torch.is_grad_enabled():
            return
        batch = torch.cdist(inputs[0].detach().flatten(1).float(), self.x).argmin(1)
        self.batches.append(batch.tolist())
        self.losses.append(float(cross_entropy(logits.detach().float(), self.y[batch], reduction="sum")))
        self.group = dist.get_world_size() if dist.is_initialized() else 0

    def listen(self) -> None:
        """Notice wrapping and saving, however the attendee imports them."""
        wrap, save = DistributedDataParallel.__init__, torch.save

        @functools.wraps(wrap)
        def wraps(this: nn.Module, *args, **kwargs) -> None:
            self.wrapped = True
            wrap(this, *args, **kwargs)

        @functools.wraps(save)
        def saves(content: object, f: object, *args, **kwargs) -> None:
            # A buffer in memory is no file.
            self.saves += isinstance(f, (str, os.PathLike)) or hasattr(f, "name")
            save(content, f, *args, **kwargs)

        DistributedDataParallel.__init__ = wraps
        torch.save = saves


def device_choices(device_for) -> list[dict]:
    """What `device_for` answers on a host that seems to have GPUS GPUs, and on one without any."""
    choices = []
    for gpus, seats in ((GPUS, SEATS), (0, SEATS[1:2])):
        for rank, local_rank in seats:
            choice = {"gpus": gpus, "seat": [rank, local_rank]}
            try:
                choice["device"] = _pretend(device_for, gpus, rank, local_rank)
            except Exception as error:
                choice["error"] = f"{type(error).__name__}: {error}"
            choices.append(choice)
    return choices


def _pretend(device_for, gpus: int, rank: int, local_rank: int) -> str:
    current: list = [0]
    kind = torch.device("cuda") if gpus else None
    answers = {
        "torch.cuda.is_available": lambda: gpus > 0,
        "torch.cuda.device_count": lambda: gpus,
        "torch.cuda.set_device": lambda device: current.append(device),
        "torch.accelerator.is_available": lambda: gpus > 0,
        "torch.accelerator.device_count": lambda: gpus,
        "torch.accelerator.current_accelerator": lambda *_: kind,
    }
    where = {"RANK": str(rank), "LOCAL_RANK": str(local_rank), "LOCAL_WORLD_SIZE": str(GPUS)}
    with ExitStack() as stack:
        stack.enter_context(mock.patch.dict(os.environ, where))
        for name, answer in answers.items():
            stack.enter_context(mock.patch(name, answer))
        device = device_for(rank=rank, local_rank=local_rank)
    if isinstance(device, int):
        device = f"cuda:{device}"
    device = torch.device(device)
    if device.type == "cuda" and device.index is None:
        last = current[-1]
        device = torch.device("cuda", last if isinstance(last, int) else torch.device(last).index)
    return str(device)


def twin(net: nn.Module, x: Tensor, y: Tensor, batches: list[list[list[int]]]) -> nn.Module:
    """One process's training on the same global batches: `batches[rank][step]` are sample indices."""
    optimizer = torch.optim.SGD([p for p in net.parameters() if p.requires_grad], lr=LR)
    for parts in zip(*batches, strict=False):
        batch = [index for part in parts for index in part]
        optimizer.zero_grad()
        cross_entropy(net(x[batch]), y[batch]).backward()
        optimizer.step()
    return net


def weights(net: nn.Module) -> Tensor:
    """All parameters of a net in one vector."""
    return torch.cat([p.detach().flatten() for p in net.parameters()])


def apart(one: Tensor, other: Tensor) -> float:
    """Largest difference of two vectors."""
    return float((one - other).abs().max())


def saved(path, net: nn.Module) -> dict:
    """What is in the checkpoint: a `fault` in a word, or the largest difference to the net."""
    if not path.exists():
        return {"fault": "absent"}
    try:
        content = torch.load(path, weights_only=True)
    except Exception:
        return {"fault": "unreadable"}
    own = net.state_dict()
    # Some keep the state_dict in a dict with more beside it.
    inner = [content, *content.values()] if isinstance(content, dict) else []
    for state in (one for one in inner if isinstance(one, dict)):
        if state.keys() == own.keys():
            return {"apart": max(apart(state[name].cpu(), own[name]) for name in own)}
        if state.keys() == {f"module.{name}" for name in own}:
            return {"fault": "prefix"}
    return {"fault": "other"}


def observe(me: Placement, attempt: Attempt) -> None:
    """Run the attendee's functions and report."""
    n = PER_RANK * me.world_size
    numbers = torch.Generator().manual_seed(7)
    x = torch.randn(n, FEATURES, generator=numbers)
    y = torch.randint(CLASSES, [n], generator=numbers)
    watch = Watch(x, y)
    watch.listen()
    path = run_folder() / "attempt.pt"
    with attempt.watched():
        attempt.load()
        device_for = attempt.function("device_for", "rank", "local_rank")
        train = attempt.function("train", "dataset", "model", "epochs", "batch_size", "lr", "checkpoint")
        report.log(me, "device", choices=device_choices(device_for))
        torch.manual_seed(me.rank)
        net = Net()
        start = copy.deepcopy(net)
        net.register_forward_hook(watch.forward)
        returned = train(
            dataset=TensorDataset(x, y), model=net, epochs=EPOCHS, batch_size=BATCH_SIZE, lr=LR, checkpoint=path
        )
    number = isinstance(returned, (int, float)) or (isinstance(returned, Tensor) and returned.numel() == 1)
    report.log(
        me,
        "trained",
        samples=n,
        epochs=EPOCHS,
        batch_size=BATCH_SIZE,
        local_rank=me.local_rank,
        batches=watch.batches,
        losses=watch.losses,
        returned=float(returned) if number else None,
        returned_type=type(returned).__name__,
        group=watch.group,
        group_left=not dist.is_initialized(),
        wrapped=watch.wrapped,
        saves=watch.saves,
    )
    cards = gather_cards(open_store(me), me, {"batches": watch.batches, "weights": weights(net).tolist()})
    if me.rank == 0:
        ends = [torch.tensor(card["weights"]) for card in cards]
        one_process = twin(start, x, y, [card["batches"] for card in cards])
        report.log(
            me,
            "compared",
            to_rank_0=[apart(end, ends[0]) for end in ends],
            to_twin=apart(ends[0], weights(one_process)),
            checkpoint=saved(path, net),
        )


def main() -> None:
    """PROBE FILE SECONDS"""
    me = read_placement()
    # Ranks of a check are small and many: more threads would only fight.
    torch.set_num_threads(1)
    observe(me, Attempt(me, sys.argv[1], float(sys.argv[2])))


if __name__ == "__main__":
    main()
