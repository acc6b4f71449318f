"""Calls each of the attendee's functions by itself, with arguments that are right, and reports what came of it.

So one mistake is one mistake: a wrong scatter does not spoil what is said about gather. All replicas
are on the CPU; the device `meta`, whose tensors have a shape and no numbers, shows whether anything moves.
"""

import copy
import threading
import time
import traceback
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from distlab import report
from distlab.checks.probe import Attempt, place_in
from distlab.process import Placement

CPU, META = torch.device("cpu"), torch.device("meta")
DEVICES, FEATURES, CLASSES, LR = 4, 6, 3, 0.1
BATCHES = (10, 8, 2)
# What a replica waits for the others, so that it can tell whether they run at the same time.
MEETING_SECONDS = 2.0


class Net(nn.Module):
    """(N, FEATURES) to logits (N, CLASSES), with a frozen weight and a buffer."""

    shift: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(FEATURES, 8)
        self.scale = nn.Parameter(torch.rand(8) + 0.5, requires_grad=False)
        self.register_buffer("shift", torch.rand(8))
        self.last = nn.Linear(8, CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        """(N, features) to logits (N, classes), with a buffer added."""
        return self.last(torch.tanh(self.first(x)) * self.scale + self.shift)


class Inner(nn.Module):
    """A network one of whose parts is called `module`, as the wrapper calls its own."""

    def __init__(self) -> None:
        super().__init__()
        self.module = nn.Linear(3, 2)
        self.head = nn.Linear(2, 2)


class Replica(nn.Module):
    """Stands in for a replica: notes who calls it, waits for the others, and answers late or with an error."""

    def __init__(self, number: int, meeting: threading.Barrier | None, fails: bool = False) -> None:
        super().__init__()
        self.number, self.meeting, self.fails = number, meeting, fails
        self.calls: list[int] = []
        self.threads: list[threading.Thread] = []
        self.met = False

    def forward(self, piece: Tensor) -> Tensor:
        """Note the piece and the thread, and fail when asked to."""
        self.calls.append(int(piece[0, 0]))
        self.threads.append(threading.current_thread())
        if self.fails:
            raise ValueError(f"replica {self.number} is broken")
        if self.meeting:
            try:
                self.meeting.wait(MEETING_SECONDS)
                self.met = True
            except threading.BrokenBarrierError:
                pass
            # The first is the last to answer, so that an order by time of arrival shows.
            time.sleep(0.03 * (DEVICES - self.number))
        return piece + 100


def tried(file: str, function: Callable, *arguments: object) -> tuple[Any, dict]:
    """What a function returns, and {} or what it raised and where."""
    try:
        return function(*arguments), {}
    except Exception as error:
        where = place_in(file, traceback.extract_tb(error.__traceback__))
        return None, {"error": f"{type(error).__name__}: {error}", **where}


def tensors(value: object) -> list[Tensor] | None:
    """A list or tuple of tensors as a list; None when it is none."""
    if not isinstance(value, (list, tuple)) or not all(isinstance(item, Tensor) for item in value):
        return None
    return list(value)


def modules(value: object) -> bool:
    """True for a list or tuple of modules."""
    return isinstance(value, (list, tuple)) and all(isinstance(item, nn.Module) for item in value)


def state_of(net: nn.Module) -> Tensor:
    """All weights and buffers of a network in one vector."""
    return torch.cat([value.detach().flatten() for value in net.state_dict().values()])


class Probe:
    """One look at each function."""

    def __init__(self, me: Placement, attempt: Attempt) -> None:
        self.me, self.attempt = me, attempt

    def call(self, function: Callable, *arguments: object) -> tuple[Any, dict]:
        """What the function returns, or the error of it."""
        return tried(self.attempt.file, function, *arguments)

    def scatter(self, scatter: Callable) -> None:
        """Batches that divide, that do not, and that are smaller than the number of devices."""
        for size in BATCHES:
            batch = torch.arange(float(size))[:, None].repeat(1, 2)
            found, fault = self.call(scatter, batch, [CPU] * DEVICES)
            pieces = tensors(found)
            samples = [[int(sample) for sample in piece.reshape(-1, 2)[:, 0]] for piece in pieces or []]
            report.log(
                self.me, "scatter", batch=size, devices=DEVICES, samples=samples, typed=pieces is not None, **fault
            )
        found, fault = self.call(scatter, torch.ones(4, 2), [CPU, META])
        places = [piece.device.type for piece in tensors(found) or []]
        report.log(self.me, "scatter devices", places=places, wanted=["cpu", "meta"], **fault)

    def replicate(self, replicate: Callable) -> None:
        """Copies, again after a step of training, and on other devices."""
        net = Net()
        before = state_of(net)
        first, fault = self.call(replicate, net, [CPU] * DEVICES)
        with torch.no_grad():
            net.first.weight += 1
        again, fault_again = self.call(replicate, net, [CPU] * DEVICES)
        if not modules(first) or not modules(again):
            report.log(self.me, "replicate", typed=False, **(fault or fault_again))
            return
        memory = [{value.data_ptr() for value in replica.state_dict().values()} for replica in again]
        record = {
            "devices": DEVICES,
            "replicas": len(again),
            "model_itself": [number for number, replica in enumerate(again) if replica is net],
            "sharing": [[a, b] for b in range(len(again)) for a in range(b) if memory[a] & memory[b]],
            "right": [replica is net or torch.equal(state_of(replica), before) for replica in first],
            "current": [torch.equal(state_of(replica), state_of(net)) for replica in again],
        }
        # Last, since it may spoil the model.
        moved, fault = self.call(replicate, net, [CPU, META])
        record |= {
            "typed": modules(moved),
            "places": [next(replica.parameters()).device.type for replica in moved] if modules(moved) else [],
            "wanted": ["cpu", "meta"],
            "model_moved": next(net.parameters()).device.type != "cpu",
        }
        report.log(self.me, "replicate", **record, **fault)

    def apply(self, parallel_apply: Callable) -> None:
        """Replicas that wait for each other and answer in reverse; then one that fails."""
        meeting = threading.Barrier(DEVICES)
        replicas = [Replica(number, meeting) for number in range(DEVICES)]
        pieces = [torch.full((2, 2), float(number)) for number in range(DEVICES)]
        found, fault = self.call(parallel_apply, replicas, pieces)
        outputs = tensors(found)
        threads = {thread for replica in replicas for thread in replica.threads}
        report.log(
            self.me,
            "apply",
            typed=outputs is not None,
            calls=[replica.calls for replica in replicas],
            met=all(replica.met for replica in replicas),
            threads=len(threads),
            answers=[int(output.flatten()[0]) - 100 for output in outputs or []],
            **fault,
        )
        broken = [Replica(number, None, fails=number == 1) for number in range(DEVICES)]
        # An error that nobody catches would be printed by its thread.
        hook, threading.excepthook = threading.excepthook, lambda _: None
        _, fault = self.call(parallel_apply, broken, pieces)
        threading.excepthook = hook
        report.log(self.me, "apply error", raised=fault.get("error"))

    def gather(self, gather: Callable) -> None:
        """Outputs of different lengths, through which gradients must come back."""
        outputs = [torch.full((size, 2), float(number), requires_grad=True) for number, size in enumerate((3, 3, 1))]
        found, fault = self.call(gather, outputs, CPU)
        moved, fault_moved = self.call(gather, [output.detach() for output in outputs], META)
        record = {"typed": isinstance(found, Tensor), "wanted": [0, 0, 0, 1, 1, 1, 2]}
        if isinstance(found, Tensor):
            if found.requires_grad:
                found.sum().backward()
            record |= {
                "shape": list(found.shape),
                "rows": [int(row) for row in found.detach().reshape(len(found), -1)[:, 0]] if found.dim() else [],
                "reached": [output.grad is not None for output in outputs],
                "place": moved.device.type if isinstance(moved, Tensor) else None,
            }
        report.log(self.me, "gather", **record, **(fault or fault_moved))

    def gradients(self, add_gradients: Callable) -> None:
        """Replicas with gradients of their own; then once more, on top of what the model has."""
        net = Net()
        replicas = [copy.deepcopy(net) for _ in range(3)]
        for number, replica in enumerate(replicas):
            for weight in replica.parameters():
                if weight.requires_grad:
                    weight.grad = torch.full_like(weight, 10.0**number)
        values = []
        for _ in range(2):
            _, fault = self.call(add_gradients, net, replicas)
            own = [weight.grad for weight in net.parameters() if weight.requires_grad]
            values.append(sorted({float(value) for grad in own if grad is not None for value in grad.flatten()}))
            if fault:
                break
        frozen = net.scale.grad is not None
        report.log(self.me, "gradients", values=values, wanted=[111.0, 222.0], frozen=frozen, **fault)

    def saves(self, state_to_save: Callable) -> None:
        """The state of a wrapped network."""
        net = Net()
        found, fault = self.call(state_to_save, nn.DataParallel(net))
        keys = list(map(str, found)) if isinstance(found, dict) else None
        same = keys == list(net.state_dict()) and all(torch.equal(found[key], net.state_dict()[key]) for key in keys)
        report.log(self.me, "saves", keys=keys, wanted=list(net.state_dict()), same=same, **fault)

    def loads(self, load: Callable) -> None:
        """Weights from with and without the wrapper, also where a part of the network is called `module`."""
        cases = {
            "saved with nn.DataParallel around it": (Net, lambda net: nn.DataParallel(net).state_dict()),
            "saved from a plain model": (Net, lambda net: net.state_dict()),
            "of a network with a part called module": (Inner, lambda net: nn.DataParallel(net).state_dict()),
        }
        for case, (kind, saved) in cases.items():
            source, target = kind(), kind()
            _, fault = self.call(load, target, saved(source))
            report.log(self.me, "loads", case=case, same=torch.equal(state_of(source), state_of(target)), **fault)

    def trains(self, train_step: Callable) -> None:
        """Some steps on all devices, beside the same steps of one device."""
        net = Net()
        twin = copy.deepcopy(net)
        ours, theirs = (
            torch.optim.SGD([p for p in model.parameters() if p.requires_grad], lr=LR) for model in (net, twin)
        )
        fault: dict = {}
        losses, wanted = [], []
        for size in (*BATCHES, 9):
            x, y = torch.randn(size, FEATURES), torch.randint(CLASSES, [size])
            returned, fault = self.call(train_step, net, ours, x, y, [CPU] * DEVICES)
            if fault:
                break
            losses.append(float(returned) if isinstance(returned, (int, float, Tensor)) else None)
            loss = cross_entropy(twin(x), y)
            theirs.zero_grad()
            loss.backward()
            theirs.step()
            wanted.append(loss.item())
        apart = float((state_of(net) - state_of(twin)).abs().max())
        report.log(self.me, "trains", steps=len(wanted), apart=apart, losses=losses, wanted=wanted, **fault)


def main() -> None:
    """PROBE FILE SECONDS"""
    attempt = Attempt.asked_for()
    torch.manual_seed(0)
    probe = Probe(attempt.me, attempt)
    with attempt.watched():
        attempt.load()
        # All of them first, so that one that is missing is said before any is tried.
        functions = {
            probe.scatter: attempt.function("scatter", "batch", "devices"),
            probe.replicate: attempt.function("replicate", "model", "devices"),
            probe.apply: attempt.function("parallel_apply", "replicas", "pieces"),
            probe.gather: attempt.function("gather", "outputs", "device"),
            probe.gradients: attempt.function("add_gradients", "model", "replicas"),
            probe.saves: attempt.function("state_to_save", "wrapped"),
            probe.loads: attempt.function("load", "model", "state"),
            probe.trains: attempt.function("train_step", "model", "optimizer", "inputs", "labels", "devices"),
        }
        for look, function in functions.items():
            look(function)


if __name__ == "__main__":
    main()
