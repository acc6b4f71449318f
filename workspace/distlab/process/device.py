"""The one place that chooses device and backend.

A GPU of its own for every rank gives cuda and nccl; fewer GPUs than ranks and ranks share them
over gloo, since NCCL refuses two ranks on one GPU; no GPU gives cpu and gloo.
DISTLAB_DEVICE (cpu, cuda) and DISTLAB_BACKEND (gloo, nccl) override.
"""

import os
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch

from distlab.errors import SettingError

CPU = "cpu"
# Of replicas on one device, more than 4 teach nothing that 2 do not.
FEWEST_REPLICAS, MOST_REPLICAS_OF_A_DEVICE = 2, 4


@dataclass(frozen=True)
class Choice:
    """What all ranks of a job agree on: 'cpu' or 'cuda', the backend, and why in one line."""

    device_type: str
    backend: str
    reason: str


def _override(name: str, allowed: tuple[str, ...], environ: Mapping[str, str]) -> str | None:
    value = environ.get(name)
    if value and value not in allowed:
        raise SettingError(f"{name}={value!r} is unknown: use {' or '.join(allowed)}")
    return value or None


def gpu_index(local_rank: int, gpus: int) -> int:
    """Index of a rank's GPU among those its host shows. Ranks share in turn when GPUs are few.

    >>> [gpu_index(local_rank, 2) for local_rank in range(4)]
    [0, 1, 0, 1]
    """
    return local_rank % gpus


def device_id(local_rank: int, environ: Mapping[str, str] = os.environ) -> str:
    """Identity of the device that this rank would take: a GPU's UUID, or 'cpu'.

    Raises:
        SettingError: DISTLAB_DEVICE is unknown, or asks for a GPU where torch sees none.
    """
    device = _override("DISTLAB_DEVICE", ("cpu", "cuda"), environ)
    if device == "cpu":
        return CPU
    if not torch.cuda.is_available():
        if device == "cuda":
            raise SettingError("DISTLAB_DEVICE=cuda, but torch sees no GPU here: unset it, or check nvidia-smi")
        return CPU
    index = gpu_index(local_rank, torch.cuda.device_count())
    return str(torch.cuda.get_device_properties(index).uuid)


def choose(device_ids: Sequence[str], environ: Mapping[str, str] = os.environ) -> Choice:
    """Choose for a whole job from what each rank offers, the same answer on every rank.

    Args:
        device_ids: one `device_id()` per rank, in rank order.

    Raises:
        SettingError: DISTLAB_BACKEND is unknown, or asks for NCCL where ranks have no GPU of their own.
    """
    backend = _override("DISTLAB_BACKEND", ("gloo", "nccl"), environ)
    gpus = set(device_ids) - {CPU}
    if len(gpus) == 0 or CPU in device_ids:
        asked = environ.get("DISTLAB_DEVICE") == "cpu"
        reason = "DISTLAB_DEVICE=cpu" if asked else "no GPU" if not gpus else "not every rank has a GPU"
        if backend == "nccl":
            raise SettingError(f"DISTLAB_BACKEND=nccl needs a GPU for every rank, but {reason}: use gloo")
        return Choice("cpu", "gloo", f"on cpu over gloo: {reason}")
    if len(gpus) < len(device_ids):
        shared = f"{len(device_ids)} ranks share {len(gpus)} GPU{'s' if len(gpus) > 1 else ''}"
        if backend == "nccl":
            raise SettingError(f"DISTLAB_BACKEND=nccl, but {shared}, which NCCL refuses: use gloo")
        return Choice("cuda", "gloo", f"on cuda over gloo: {shared}, and NCCL wants one for each")
    return Choice("cuda", backend or "nccl", f"on cuda over {backend or 'nccl'}: a GPU for each rank")


def place(choice: Choice, local_rank: int) -> torch.device:
    """The device of a rank, from its *local* rank, made current when it is a GPU."""
    if choice.device_type == "cpu":
        return torch.device("cpu")
    device = torch.device("cuda", gpu_index(local_rank, torch.cuda.device_count()))
    torch.cuda.set_device(device)
    return device


def spread(main: torch.device, count: int | None = None) -> list[torch.device]:
    """Devices for the replicas of one process, the main one first.

    Different GPUs when this process sees two or more, else the main device again and again: a
    share of the cores for each replica, or a single GPU for all.

    Args:
        count: how many; by default all GPUs, or a replica for each core, from 2 to 4.
    """
    gpus = torch.cuda.device_count() if main.type == "cuda" else 0
    if gpus >= (count or FEWEST_REPLICAS):
        others = [torch.device("cuda", index) for index in range(gpus) if index != main.index]
        return [main, *others][:count]
    if count is None:
        cores = torch.get_num_threads() if main.type == "cpu" else 0
        count = min(max(FEWEST_REPLICAS, cores), MOST_REPLICAS_OF_A_DEVICE)
    return [main] * count


def now(*devices: torch.device) -> float:
    """Seconds on a clock, read when these devices have finished: a GPU is still busy when its calls return."""
    for device in devices:
        if device.type == "cuda":
            torch.cuda.synchronize(device)
    return time.perf_counter()
