"""Calls the attendee's `train` three times and reports what each of its steps did.

In float16, again in float16 from the checkpoint of the first call, and in bfloat16. Every rank does
the same by itself. The net has a narrow place where gradients are too small for float16 without a
scale, and in one step a gradient overflows. What should have happened is computed here in float32.
"""

import copy
import functools
import itertools
import math
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy, softmax
from torch.nn.utils import vector_to_parameters
from torch.optim.optimizer import register_optimizer_step_pre_hook
from torch.utils.data import TensorDataset

from distlab import report
from distlab.checks.probe import Attempt
from distlab.process import Placement, run_folder

SAMPLES, BATCH_SIZE, LR, MOMENTUM = 40, 8, 0.1, 0.9
# Three channels: with one, both layouts would be the same. Small: not every CPU computes in float16.
CHANNELS, SIDE, CLASSES = 3, 8, 5
# In the first call every step is clipped, in the second none.
CALLS: dict[str, dict[str, Any]] = {
    "first": {"epochs": 2, "max_norm": 0.1, "dtype": torch.float16},
    "resumed": {"epochs": 1, "max_norm": 100.0, "dtype": torch.float16},
    "bfloat16": {"epochs": 1, "max_norm": 0.1, "dtype": torch.bfloat16},
}
OVERFLOW_STEP = 3
OVERFLOW_FACTOR = 1e12


class Net(nn.Module):
    """(N, CHANNELS, SIDE, SIDE) to logits (N, CLASSES)."""

    # A power of two, so that dividing it out again changes nothing.
    NARROW = 2.0**17

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Conv2d(CHANNELS, 8, 3, padding=1)
        self.second = nn.Conv2d(8, 8, 3, padding=1)
        self.head = nn.Linear(8, CLASSES)
        # So small that NARROW times the layer's output is still a number in float16.
        with torch.no_grad():
            for p in self.first.parameters():
                p.mul_(2.0**-5)

    def forward(self, x: Tensor) -> Tensor:
        """(N, features) to logits (N, classes), through a place where float16 gradients vanish."""
        x = self.first(x).relu()
        # Between these two products gradients are NARROW times smaller.
        x = (x * self.NARROW) * (1 / self.NARROW)
        return self.head(self.second(x).relu().mean((2, 3)))


def vector(tensors: Iterator[Tensor | None], net: nn.Module) -> Tensor:
    """A tensor for each parameter of a net in one vector, in float32; None stands for zeros."""
    pairs = zip(tensors, net.parameters(), strict=True)
    return torch.cat([(torch.zeros_like(p) if t is None else t).detach().float().flatten() for t, p in pairs])


def weights(net: nn.Module) -> Tensor:
    """All parameters of a net in one vector."""
    return vector(iter(net.parameters()), net)


def gradients(net: nn.Module) -> Tensor:
    """All gradients of a net in one vector."""
    return vector((p.grad for p in net.parameters()), net)


def layout(tensor: Tensor) -> dict:
    """Shape and strides of a tensor of four dimensions, and the strides that channels_last would be."""
    right = torch.empty(tensor.shape).to(memory_format=torch.channels_last).stride()
    return {"shape": list(tensor.shape), "strides": list(tensor.stride()), "channels_last": list(right)}


def name_of(dtype: torch.dtype) -> str:
    """`float16`"""
    return str(dtype).removeprefix("torch.")


@dataclass
class Step:
    """One training step, seen from the net and the optimizer.

    Attributes:
        stale: gradients of an earlier step were there when backward began.
        scale: by what the gradient of the logits was multiplied.
        raw: gradients when backward ended.
        taken: what the optimizer got, each time that it was stepped.
    """

    weights: Tensor
    weight: dict
    weight_dtype: str
    input: dict | None = None
    computed_in: str = ""
    batch: list[int] | None = None
    loss: float = math.nan
    autocast_in_backward: bool = False
    stale: bool = False
    scale: float = math.nan
    raw: Tensor | None = None
    taken: tuple[Tensor, ...] = ()


class Ledger:
    """Hooks of one net in one call of `train`, from which its steps are known."""

    def __init__(self, net: Net, x: Tensor, y: Tensor, device: torch.device, overflow_step: int | None) -> None:
        self.net, self.x, self.y, self.device = net, x, y, device
        self.overflow_step = overflow_step
        self.steps: list[Step] = []
        net.register_forward_pre_hook(self._begins)
        net.first.register_forward_pre_hook(self._reads)
        net.first.register_forward_hook(self._computes)
        net.register_forward_hook(self._ends)

    def _begins(self, net: Net, _inputs: tuple) -> None:
        if not torch.is_grad_enabled():
            return
        kind = net.second.weight
        self.steps.append(Step(weights(net), layout(kind), name_of(kind.dtype)))

    def _reads(self, _layer: nn.Module, inputs: tuple) -> None:
        if torch.is_grad_enabled():
            self.steps[-1].input = layout(inputs[0])

    def _computes(self, _layer: nn.Module, _inputs: tuple, output: Tensor) -> None:
        if not torch.is_grad_enabled():
            return
        self.steps[-1].computed_in = name_of(output.dtype)
        if len(self.steps) == self.overflow_step:
            output.register_hook(lambda gradient: gradient * OVERFLOW_FACTOR)

    def _ends(self, _net: Net, inputs: tuple, logits: Tensor) -> None:
        if not torch.is_grad_enabled():
            return
        step = self.steps[-1]
        # Samples are told by their values, so any loader will do.
        step.batch = torch.cdist(inputs[0].detach().float().flatten(1), self.x.flatten(1)).argmin(1).tolist()
        labels, known = self.y[step.batch], logits.detach().float()
        step.loss = float(cross_entropy(known, labels))
        # What backward from the mean loss itself brings here.
        plain = (softmax(known, 1) - nn.functional.one_hot(labels, CLASSES)) / len(labels)
        logits.register_hook(lambda gradient: self._goes_back(step, gradient, plain))

    def _goes_back(self, step: Step, gradient: Tensor, plain: Tensor) -> None:
        step.autocast_in_backward = torch.is_autocast_enabled(self.device.type)
        step.stale = any(p.grad is not None and bool(p.grad.any()) for p in self.net.parameters())
        step.scale = float((gradient.float() * plain).sum() / (plain * plain).sum())
        torch.autograd.Variable._execution_engine.queue_callback(lambda: self._has_gone_back(step))

    def _has_gone_back(self, step: Step) -> None:
        step.raw = gradients(self.net)

    def optimizer_steps(self, *_args: object) -> None:
        """A hook of every optimizer, before it changes weights."""
        if self.steps:
            self.steps[-1].taken += (gradients(self.net),)


class Kinds:
    """Notes for which kinds of device autocast and scalers were made that are used, however they are imported."""

    def __init__(self) -> None:
        self.autocast: set[str] = set()
        self.scalers: set[tuple[str, bool]] = set()
        enter, scale = torch.autocast.__enter__, torch.amp.GradScaler.scale

        @functools.wraps(enter)
        def enters(this: torch.autocast) -> object:
            self.autocast.add(this.device)
            return enter(this)

        @functools.wraps(scale)
        def scales(this: torch.amp.GradScaler, outputs: Any) -> Any:
            self.scalers.add((this._device, this.is_enabled()))
            return scale(this, outputs)

        torch.autocast.__enter__ = enters
        torch.amp.GradScaler.scale = scales  # type: ignore[assignment]  # that is overloaded


class Float32:
    """The net once more, for what training in float32 would do from the same weights and batches."""

    def __init__(self, net: Net, x: Tensor, y: Tensor) -> None:
        self.net, self.x, self.y = copy.deepcopy(net), x, y

    def gradient(self, at: Tensor, batch: list[int]) -> Tensor:
        """The gradient of the mean loss at some weights."""
        vector_to_parameters(at.clone(), self.net.parameters())
        self.net.zero_grad()
        cross_entropy(self.net(self.x[batch]), self.y[batch]).backward()
        return gradients(self.net)

    def train(self, start: Tensor, calls: list[tuple[list[Step], float]]) -> Tensor:
        """The weights at the end of some calls; steps that overflowed are left out."""
        at, velocity = start.clone(), torch.zeros_like(start)
        for steps, max_norm in calls:
            for step in steps:
                if overflowed(step):
                    continue
                velocity = MOMENTUM * velocity + clipped(self.gradient(at, step.batch), max_norm)
                at = at - LR * velocity
        return at


def clipped(gradient: Tensor, max_norm: float) -> Tensor:
    """A gradient of at most this norm."""
    return gradient * min(1.0, max_norm / float(gradient.norm()))


def overflowed(step: Step) -> bool:
    """Backward brought gradients that are not finite."""
    return step.raw is not None and not bool(step.raw.isfinite().all())


def vanished(raw: Tensor | None, right: Tensor) -> float | None:
    """Share of all gradients that are 0, though in float32 they are not."""
    return None if raw is None else float(((raw == 0) & (right != 0)).float().mean())


def seen(step: Step, after: Tensor, truth: Float32, max_norm: float) -> dict:
    """A step as requirements want it, held against float32. `after`: the weights after it."""
    finite = bool(step.weights.isfinite().all())
    right = truth.gradient(step.weights, step.batch) if finite else torch.full_like(step.weights, math.nan)
    aim, taken = clipped(right, max_norm), step.taken[0] if step.taken else None
    return {
        "weight": step.weight,
        "weight_dtype": step.weight_dtype,
        "input": step.input,
        "computed_in": step.computed_in,
        "autocast_in_backward": step.autocast_in_backward,
        "stale": step.stale,
        "scale": step.scale,
        "overflowed": overflowed(step),
        "vanished": vanished(step.raw, right),
        "taken": len(step.taken),
        "norm": None if taken is None else float(taken.norm()),
        "norm_float32": float(right.norm()),
        "off": None if taken is None else float((taken - aim).norm() / aim.norm()),
        "not_finite_after": int((~after.isfinite()).sum()),
        "parameters": len(after),
    }


def saved_scale(path: Path) -> dict:
    """What a checkpoint says of the scaler: `file`, is there one; `scale`, None if it has no state of a scaler."""
    if not path.exists():
        return {"file": False, "scale": None}
    content = torch.load(path, weights_only=False)
    inner = itertools.chain([content], content.values()) if isinstance(content, dict) else []
    states = [value for value in inner if isinstance(value, dict) and "growth_factor" in value]
    return {"file": True, "scale": float(states[0]["scale"]) if states else None}


@contextmanager
def optimizers_tell(ledger: Ledger) -> Iterator[None]:
    """Every optimizer tells a ledger when it is stepped."""
    handle = register_optimizer_step_pre_hook(ledger.optimizer_steps)
    try:
        yield
    finally:
        handle.remove()


def number(returned: Any) -> float | None:
    """What `train` returned, if it is one number."""
    right = isinstance(returned, (int, float)) or (isinstance(returned, Tensor) and returned.numel() == 1)
    return float(returned) if right else None


def observe(me: Placement, attempt: Attempt) -> None:
    """Run the attendee's function and report."""
    numbers = torch.Generator().manual_seed(7)
    x = torch.randn(SAMPLES, CHANNELS, SIDE, SIDE, generator=numbers)
    y = torch.randint(CLASSES, [SAMPLES], generator=numbers)
    device = torch.device("cpu")
    kinds, ledgers, records = Kinds(), {}, {}
    with attempt.watched():
        attempt.load()
        arguments = ("dataset", "model", "epochs", "batch_size", "lr", "max_norm", "dtype", "device", "checkpoint")
        train = attempt.function("train", *arguments)
        for seed, (name, how) in enumerate(CALLS.items()):
            torch.manual_seed(seed)
            net = Net()
            ledger = ledgers[name] = Ledger(net, x, y, device, OVERFLOW_STEP if name == "first" else None)
            # Hosts may share a folder, and every rank trains by itself.
            path = run_folder() / f"attempt{me.rank}-{name_of(how['dtype'])}.pt"
            kinds.scalers.clear()
            with optimizers_tell(ledger):
                returned = train(
                    dataset=TensorDataset(x, y),
                    model=net,
                    batch_size=BATCH_SIZE,
                    lr=LR,
                    device=device,
                    checkpoint=path,
                    **how,
                )
            records[name] = {
                "scalers": sorted(kinds.scalers),
                "returned": number(returned),
                "returned_type": type(returned).__name__,
                "checkpoint": saved_scale(path),
            }
    truth = Float32(Net(), x, y)
    for name, ledger in ledgers.items():
        steps, max_norm = ledger.steps, CALLS[name]["max_norm"]
        ends = [*(step.weights for step in steps[1:]), weights(ledger.net)]
        records[name] |= {
            "epochs": CALLS[name]["epochs"],
            "max_norm": max_norm,
            "dtype": name_of(CALLS[name]["dtype"]),
            "steps": [seen(step, after, truth, max_norm) for step, after in zip(steps, ends, strict=True)],
            "losses": [step.loss for step in steps],
            "samples": [len(step.batch) for step in steps],
        }
    report.log(
        me,
        "trained",
        device=device.type,
        autocast=sorted(kinds.autocast),
        **records,
        **compared(ledgers, truth),
    )


def compared(ledgers: dict[str, Ledger], truth: Float32) -> dict:
    """How the two calls in float16 fit together, and where float32 would have ended."""
    first, resumed = ledgers["first"], ledgers["resumed"]
    if not first.steps or not resumed.steps:
        return {"resumed_off": None, "ends_off": None}
    start, middle, end = first.steps[0].weights, weights(first.net), weights(resumed.net)
    right = truth.train(start, [(ledger.steps, CALLS[name]["max_norm"]) for name, ledger in ledgers.items()][:2])
    return {
        "resumed_off": float((resumed.steps[0].weights - middle).abs().max()),
        "ends_off": float((end - right).norm() / (right - start).norm()),
    }


def main() -> None:
    """PROBE FILE SECONDS"""
    attempt = Attempt.asked_for()
    observe(attempt.me, attempt)


if __name__ == "__main__":
    main()
