"""The four steps of DataParallel, and the backward pass through them.

    pieces   = scatter(batch, devices)            # cut the batch
    copies   = replicate(model, devices)          # copy the weights
    outputs  = parallel_apply(copies, pieces)     # compute, a thread for each
    output   = gather(outputs, devices[0])        # join the outputs

Autograd goes the same way back: the gradient of the output is cut, each replica computes its part,
and the gradients of all copies add up on the model's own weights.

Every step does what its namesake in torch.nn.parallel does on GPUs, by means that also work where
all devices are one: the cores of a CPU, or a single GPU.
"""

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

import torch
from torch import Tensor, nn


def scatter(batch: Tensor, devices: Sequence[torch.device]) -> list[Tensor]:
    """Cut a batch (N, ...) into pieces (n, ...) in its own order, one for each device.

    All pieces but the last are equally large: N / devices, rounded up. A small batch is used up
    before the last devices get any, so there may be fewer pieces than devices.
    """
    return [piece.to(device) for piece, device in zip(batch.chunk(len(devices)), devices, strict=False)]


def replicate(model: nn.Module, devices: Sequence[torch.device]) -> list[nn.Module]:
    """A copy of the model for each device, weights and buffers as they are now.

    The first is on the model's own device and shares its memory. A gradient that reaches a copy
    goes on to the model.
    """
    replicas = []
    for number, device in enumerate(devices):
        # torch's own hook for replicas: layers that cache their weights override it.
        copies = {layer: layer._replicate_for_data_parallel() for layer in model.modules()}
        for layer, copy in copies.items():
            for name, child in layer._modules.items():
                copy._modules[name] = copies.get(child)
            for name, weight in (layer._parameters | layer._buffers).items():
                if weight is not None:
                    setattr(copy, name, weight.view_as(weight) if number == 0 else weight.to(device, copy=True))
        replicas.append(copies[model])
    return replicas


def parallel_apply(
    replicas: Sequence[nn.Module],
    inputs: Sequence[tuple],
    kwargs: Sequence[dict] | None = None,
    devices: Sequence[torch.device] | None = None,
) -> list[Tensor]:
    """Run each replica on its own inputs, in a thread of its own; outputs in the order of the replicas.

    Backward runs in as many threads again. Autograd has one for each GPU, but a single one for
    the CPU, where all replicas would wait for each other.

    Raises:
        TypeError: a replica returns something else than a tensor.
        Exception: whatever a replica raises, with a note that says which and on which device.
    """
    kwargs, devices = kwargs or [{}] * len(replicas), devices or [torch.device("cpu")] * len(replicas)
    grad = torch.is_grad_enabled()
    casts = {kind: (torch.is_autocast_enabled(kind), torch.get_autocast_dtype(kind)) for kind in ("cpu", "cuda")}

    def run(number: int) -> Tensor:
        # A thread begins with gradients on and autocast off, whatever the thread that started it has set.
        kind = devices[number].type
        enabled, dtype = casts[kind]
        with torch.set_grad_enabled(grad), torch.autocast(kind, dtype, enabled):
            output = replicas[number](*inputs[number], **kwargs[number])
        if not isinstance(output, Tensor):
            raise TypeError(f"the stand-in joins tensors, and the model returned a {type(output).__name__}")
        return output

    outputs = in_threads(run, devices)
    if not any(output.requires_grad for output in outputs):
        return outputs
    starts = [_starts(*one) for one in zip(replicas, inputs, kwargs, strict=True)]
    return list(_BackwardInThreads.apply(outputs, starts, devices, *(tensor for one in starts for tensor in one)))


def gather(outputs: Sequence[Tensor], device: torch.device) -> Tensor:
    """The outputs (n, ...) of all replicas as one (N, ...) on one device, in their order.

    Outputs without a batch dimension, such as losses, become a vector with one number for each.
    """
    return torch.cat([(output if output.dim() else output.view(1)).to(device) for output in outputs])


def in_threads(work: Callable[[int], object], devices: Sequence[torch.device]) -> list:
    """What `work(number)` returns for each device, each called in a thread of its own.

    Raises:
        Exception: what the first of them raised, with a note that says where.
    """
    results: list = [None] * len(devices)
    failures: list[BaseException | None] = [None] * len(devices)

    def worker(number: int) -> None:
        try:
            results[number] = work(number)
        except BaseException as error:
            error.add_note(f"in replica {number} of {len(devices)}, on {devices[number]}")
            failures[number] = error

    with _cores_divided(len(devices)):
        threads = [threading.Thread(target=worker, args=[number]) for number in range(len(devices))]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    for error in failures:
        if error is not None:
            raise error
    return results


@contextmanager
def _cores_divided(parts: int) -> Iterator[None]:
    # New threads compute with as many cores as set here. Undivided, each would use all of them and
    # they would spend their time on waiting for each other.
    cores = torch.get_num_threads()
    torch.set_num_threads(max(1, cores // parts))
    try:
        yield
    finally:
        torch.set_num_threads(cores)


def _starts(replica: nn.Module, inputs: tuple, kwargs: dict) -> list[Tensor]:
    """Where the graph of one replica begins: its copies of the weights, and its inputs."""
    held = [value for layer in replica.modules() for value in (vars(layer) | layer._buffers).values()]
    return [one for one in (*held, *inputs, *kwargs.values()) if isinstance(one, Tensor) and one.requires_grad]


class _BackwardInThreads(torch.autograd.Function):
    """One node of the graph, in the place of all replicas' graphs: its backward runs them side by side."""

    @staticmethod
    def forward(ctx, outputs: list, starts: list, devices: Sequence, *tensors: Tensor) -> tuple[Tensor, ...]:
        ctx.graphs = outputs, starts, devices
        return tuple(output.detach() for output in outputs)

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx, *gradients: Tensor) -> tuple:
        outputs, starts, devices = ctx.graphs

        def run(number: int) -> Sequence[Tensor | None]:
            if not starts[number]:
                return ()
            return torch.autograd.grad(outputs[number], starts[number], gradients[number], allow_unused=True)

        found = in_threads(run, devices)
        return None, None, None, *(gradient for one in found for gradient in one)
