"""A thread for each replica, in forward and in backward."""

import threading
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from distlab import process


def in_threads(work: Callable[[int], object], devices: Sequence[torch.device]) -> list:
    """What `work(number)` returns for each device, each called in a thread of its own.

    Threads compute as their caller would: with or without gradients, with or without autocast.

    Raises:
        Exception: what the first of them raised, with a note that says where.
    """
    results: list = [None] * len(devices)
    failures: list[BaseException | None] = [None] * len(devices)
    grad = torch.is_grad_enabled()
    casts = {kind: (torch.get_autocast_dtype(kind), torch.is_autocast_enabled(kind)) for kind in ("cpu", "cuda")}

    def worker(number: int) -> None:
        kind = devices[number].type
        try:
            with torch.set_grad_enabled(grad), torch.autocast(kind, *casts[kind]):
                results[number] = work(number)
        except BaseException as error:
            error.add_note(f"in replica {number} of {len(devices)}, on {devices[number]}")
            failures[number] = error

    # Otherwise each replica would start a thread for every core, and they would compete for them.
    with process.threads(max(1, torch.get_num_threads() // len(devices))):
        threads = [threading.Thread(target=worker, args=[number]) for number in range(len(devices))]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    for error in failures:
        if error is not None:
            raise error
    return results


def backward_in_threads(
    outputs: Sequence[Tensor], replicas: Sequence, inputs: Sequence, kwargs: Sequence, devices: Sequence
) -> list[Tensor]:
    """The same outputs, whose backward pass runs a thread for each replica.

    Autograd has a thread for each GPU but only one for the CPU, where replicas would run one after the other.

    Raises:
        TypeError: a replica returned something else than a tensor.
    """
    for output in outputs:
        if not isinstance(output, Tensor):
            raise TypeError(f"the stand-in joins tensors, and the model returned a {type(output).__name__}")
    if not any(output.requires_grad for output in outputs):
        return list(outputs)
    starts = [_starts(*replica) for replica in zip(replicas, inputs, kwargs, strict=True)]
    return list(_Backward.apply(outputs, starts, devices, *(tensor for leaves in starts for tensor in leaves)))


def _starts(replica: nn.Module, inputs: tuple, kwargs: dict) -> list[Tensor]:
    """Where the graph of one replica begins: its copies of the weights, and its inputs."""
    held = [value for layer in replica.modules() for value in (vars(layer) | layer._buffers).values()]
    return [value for value in (*held, *inputs, *kwargs.values()) if isinstance(value, Tensor) and value.requires_grad]


class _Backward(torch.autograd.Function):
    """A single node instead of the replicas' graphs, which its backward runs in parallel."""

    @staticmethod
    def forward(ctx: Any, outputs: list, starts: list, devices: Sequence, *tensors: Tensor) -> tuple[Tensor, ...]:
        ctx.graphs = outputs, starts, devices
        return tuple(output.detach() for output in outputs)

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, *gradients: Tensor) -> tuple:
        outputs, starts, devices = ctx.graphs

        def run(number: int) -> Sequence[Tensor | None]:
            if not (starts[number] and outputs[number].requires_grad):
                return [None] * len(starts[number])
            return torch.autograd.grad(outputs[number], starts[number], gradients[number], allow_unused=True)

        found = in_threads(run, devices)
        return None, None, None, *(gradient for gradients in found for gradient in gradients)
