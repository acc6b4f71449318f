"""Asks a `device_for` for its choices on hosts that seem to have GPUs, and on one without any."""

import os
from collections.abc import Callable
from contextlib import ExitStack
from typing import Any
from unittest import mock

import torch

GPUS = 2
# (rank, local_rank) on hosts of two ranks each, and where a host of one rank comes first.
PLACES = [(0, 0), (1, 1), (2, 0), (3, 1), (1, 0), (2, 1)]


def choices(device_for: Callable[[int, int], Any]) -> list[dict[str, Any]]:
    """What `device_for(rank, local_rank)` answers on a host with GPUS GPUs, and on one without any."""
    made = []
    for gpus, places in ((GPUS, PLACES), (0, PLACES[1:2])):
        for rank, local_rank in places:
            choice = {"gpus": gpus, "place": [rank, local_rank]}
            try:
                choice["device"] = _pretend(device_for, gpus, rank, local_rank)
            except Exception as error:
                choice["error"] = f"{type(error).__name__}: {error}"
            made.append(choice)
    return made


def _pretend(device_for: Callable[[int, int], Any], gpus: int, rank: int, local_rank: int) -> str:
    current: list[Any] = [0]
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
        device = device_for(rank, local_rank)
    if isinstance(device, int):
        device = f"cuda:{device}"
    device = torch.device(device)
    if device.type == "cuda" and device.index is None:
        last = current[-1]
        device = torch.device("cuda", last if isinstance(last, int) else torch.device(last).index)
    return str(device)
