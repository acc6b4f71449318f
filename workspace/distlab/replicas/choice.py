"""torch's DataParallel where there are GPUs for it, else the stand-in."""

from collections.abc import Sequence

import torch
from torch import nn

from distlab.process import Rank
from distlab.replicas.standin import StandIn


def wrap(model: nn.Module, devices: Sequence[torch.device]) -> nn.DataParallel:
    """A model with a replica on each device: nn.DataParallel on different GPUs, else `StandIn`.

    Args:
        model: on the first of the devices.
    """
    different_gpus = all(device.type == "cuda" for device in devices) and len(set(devices)) == len(devices)
    return nn.DataParallel(model, list(devices)) if different_gpus else StandIn(model, devices)


def data_parallel(model: nn.Module, me: Rank) -> nn.DataParallel:
    """A model with a replica on each device of this process; rank 0 prints which those are."""
    devices = me.devices()
    wrapped = wrap(model, devices)
    if isinstance(wrapped, StandIn):
        where = "the CPU" if me.device.type == "cpu" else "the only GPU"
        me.print(f"no two GPUs here: {len(devices)} replicas on {where} stand in")
    else:
        me.print(f"{len(devices)} replicas, on {', '.join(map(str, devices))}")
    return wrapped
