"""Observes the four steps of a DataParallel, torch's or the stand-in."""

from collections.abc import Callable, Sequence

import torch
from torch import nn

from distlab import process

STEPS = ("scatter", "replicate", "parallel_apply", "gather")


def follow(wrapped: nn.DataParallel) -> dict[nn.Module, int]:
    """A dict from each replica's layers to its number, filled anew by each forward pass.

    Hooks of the model run in every replica and get that replica's layer, to look up here.
    """
    owner: dict[nn.Module, int] = {}
    replicate = wrapped.replicate

    def noted(module: nn.Module, device_ids: Sequence) -> list[nn.Module]:
        replicas = replicate(module, device_ids)
        owner.clear()
        owner.update({layer: number for number, replica in enumerate(replicas) for layer in replica.modules()})
        return replicas

    wrapped.replicate = noted
    return owner


def now(device: torch.device) -> float:
    """Seconds on a clock, read when all devices of this kind have finished."""
    gpus = torch.cuda.device_count() if device.type == "cuda" else 0
    return process.now(*(torch.device("cuda", gpu) for gpu in range(gpus)))


def time_steps(wrapped: nn.DataParallel, device: torch.device, seconds: dict[str, float]) -> None:
    """Write into `seconds` how long each of the four steps of a forward pass takes.

    On GPUs each step is waited for, which costs some overlap between them.
    """
    for name in STEPS:
        step = getattr(wrapped, name)

        def timed(*arguments: object, name: str = name, step: Callable = step) -> object:
            start = now(device)
            result = step(*arguments)
            seconds[name] = now(device) - start
            return result

        setattr(wrapped, name, timed)
