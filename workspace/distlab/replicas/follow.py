"""What the four steps of a DataParallel do, seen from outside: the same for torch's and for the stand-in."""

import time

import torch
from torch import nn

STEPS = ("scatter", "replicate", "parallel_apply", "gather")


def follow(wrapped: nn.DataParallel) -> dict[nn.Module, int]:
    """A table that says, from each forward pass on, which replica a layer belongs to.

    Hooks of the model are called in every replica, with the replica's layer: look it up here.
    """
    owner: dict[nn.Module, int] = {}
    replicate = wrapped.replicate

    def noted(*arguments: object) -> list[nn.Module]:
        replicas = replicate(*arguments)
        owner.clear()
        owner.update({layer: number for number, one in enumerate(replicas) for layer in one.modules()})
        return replicas

    wrapped.replicate = noted
    return owner


def now(device: torch.device) -> float:
    """Seconds, when all work that a device was given is done."""
    if device.type == "cuda":
        for gpu in range(torch.cuda.device_count()):
            torch.cuda.synchronize(gpu)
    return time.perf_counter()


def time_steps(wrapped: nn.DataParallel, device: torch.device, seconds: dict[str, float]) -> None:
    """Write into `seconds` how long each of the four steps of a forward pass takes.

    On GPUs each step is waited for, which costs some overlap between them.
    """
    for name in STEPS:
        step = getattr(wrapped, name)

        def timed(*arguments: object, name: str = name, step: object = step) -> object:
            start = now(device)
            result = step(*arguments)
            seconds[name] = now(device) - start
            return result

        setattr(wrapped, name, timed)
