"""nn.DataParallel where there are no two GPUs: torch's own forward, with our four steps."""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn

from distlab.replicas import steps


class StandIn(nn.DataParallel):
    """A DataParallel whose replicas share one device: some cores each on a CPU, or one GPU together.

    Checks, order of the steps and names of the weights are those of torch, whose `forward` calls
    the four methods below. A model must return one tensor.

    Args:
        devices: where each replica computes, the model's own device first.
    """

    # torch's own are numbers of GPUs.
    device_ids: Any
    output_device: Any

    def __init__(self, module: nn.Module, devices: Sequence[torch.device]) -> None:
        # Not DataParallel.__init__, which needs a GPU.
        nn.Module.__init__(self)
        self.module, self.dim = module, 0
        self.device_ids, self.output_device, self.src_device_obj = list(devices), devices[0], devices[0]

    def scatter(self, inputs: tuple, kwargs: dict | None, device_ids: Sequence) -> tuple[tuple, tuple]:
        """Each device's arguments: tensors are cut, everything else goes to all."""

        def share(value: object) -> Sequence:
            return steps.scatter(value, device_ids) if isinstance(value, Tensor) else [value] * len(device_ids)

        positional = list(zip(*map(share, inputs), strict=False))
        named = [dict(zip(kwargs, part, strict=True)) for part in zip(*map(share, kwargs.values()), strict=False)]
        pieces = min(len(part) for part in (positional, named) if part) if positional or named else 0
        return tuple(positional[:pieces] or [()] * pieces), tuple(named[:pieces] or [{}] * pieces)

    def replicate(self, module: nn.Module, device_ids: Sequence) -> list[nn.Module]:
        """A copy of the module for each device."""
        return steps.replicate(module, device_ids)

    def parallel_apply(self, replicas: Sequence[nn.Module], inputs: Sequence[tuple], kwargs: Sequence[dict]) -> list:
        """The outputs of all replicas."""
        return steps.parallel_apply(replicas, inputs, kwargs, self.device_ids[: len(replicas)])

    def gather(self, outputs: Sequence[Tensor], output_device: Any) -> Tensor:
        """One output, on the first device."""
        return steps.gather(outputs, output_device)
