"""The four steps of DataParallel: what torch.nn.parallel does on GPUs, for devices of any kind."""

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from distlab.replicas.threads import backward_in_threads, in_threads


def scatter(batch: Tensor, devices: Sequence[torch.device]) -> list[Tensor]:
    """Cut a batch (N, ...) into pieces of N / devices samples, rounded up; the last devices may get none."""
    return [piece.to(device) for piece, device in zip(batch.chunk(len(devices)), devices, strict=False)]


def replicate(model: nn.Module, devices: Sequence[torch.device]) -> list[nn.Module]:
    """A copy of the model, as it is now, for each device; the first shares the model's memory."""
    replicas = []
    for number, device in enumerate(devices):
        # Layers that cache their weights override this hook of torch's.
        copies = {layer: layer._replicate_for_data_parallel() for layer in model.modules()}
        for layer, copy in copies.items():
            for name, child in layer._modules.items():
                copy._modules[name] = copies.get(child)
            for name, weight in (layer._parameters | layer._buffers).items():
                if weight is not None:
                    # Not detached, so gradients of the copy flow on to the model.
                    own = weight.to(device, copy=True) if number else weight.view_as(weight)
                    setattr(copy, name, own)
        replicas.append(copies[model])
    return replicas


def parallel_apply(replicas: Sequence, inputs: Sequence, kwargs: Sequence, devices: Sequence) -> list[Tensor]:
    """What each replica makes of its own arguments, each computed in a thread, forward and backward."""
    outputs = in_threads(lambda number: replicas[number](*inputs[number], **kwargs[number]), devices)
    return backward_in_threads(outputs, replicas, inputs, kwargs, devices)


def gather(outputs: Sequence[Tensor], device: torch.device) -> Tensor:
    """The outputs of all replicas as one (N, ...), in their order; single numbers become a vector."""
    return torch.cat([(output if output.dim() else output.view(1)).to(device) for output in outputs])
