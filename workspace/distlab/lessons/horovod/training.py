"""Training with Horovod: its options, its step, and what its ranks do together.

Sergeev and Del Balso 2018, Horovod: fast and easy distributed deep learning in TensorFlow, arXiv
1802.05799. Nothing here imports Horovod before it is used.
"""

import argparse
from typing import Any, TypeVar

import torch
from torch import Tensor
from torch.optim import Optimizer

from distlab import loop
from distlab.process import Rank, amp_dtype

Value = TypeVar("Value")


def options(description: str | None = None) -> argparse.ArgumentParser:
    """The options of every training script, and those of Horovod."""
    parser = loop.options(description)
    add = parser.add_argument
    add("--compress", choices=("none", "fp16"), default="none", help="gradient compression")
    add("--combine", choices=("average", "adasum"), default="average", help="reduction of gradients over ranks")
    add("--amp", choices=("bf16", "fp16", "off"), default="off", help="type of the forward pass")
    add("--clip", type=loop.real(above=0), metavar="NORM", help="clip the gradient's norm to this")
    return parser


def combining(args: argparse.Namespace) -> dict:
    """How hvd.DistributedOptimizer makes one gradient of many, from `options`.

    Raises:
        RuntimeError: Adasum needs MPI, and this job runs over gloo.
    """
    import horovod.torch as hvd

    if args.combine == "adasum" and not hvd.mpi_enabled():
        raise RuntimeError("--combine adasum needs MPI: use --launcher horovodrun-mpi or mpirun")
    return {
        "op": hvd.Adasum if args.combine == "adasum" else hvd.Average,
        "compression": hvd.Compression.fp16 if args.compress == "fp16" else hvd.Compression.none,
        "backward_passes_per_step": args.accumulate,
    }


class Scaler(torch.amp.GradScaler):
    """Synchronize, unscale, step without synchronizing again: a scaler that knows Horovod's optimizer.

    One that does not leaves out a step with an infinite gradient, and with it the averaging that is in
    the step; then gradients of this update meet those of the next.
    """

    def unscale_(self, optimizer: Optimizer) -> None:
        """Average over all ranks first, so that all see the same gradients, and the same infinities."""
        optimizer.synchronize()  # type: ignore[attr-defined]  # only Horovod's, which is untyped, has it
        super().unscale_(optimizer)

    def step(self, optimizer: Optimizer, *args: Any, **kwargs: Any) -> float | None:
        """Step when all gradients are finite."""
        with optimizer.skip_synchronize():  # type: ignore[attr-defined]  # as above
            return super().step(optimizer, *args, **kwargs)


def step(me: Rank, args: argparse.Namespace) -> loop.MixedStep:
    """The step that `options` ask for, in any precision.

    Raises:
        ValueError: Adasum combines what optimizers did, so there is no common gradient to clip or unscale.
    """
    dtype = amp_dtype(me, args.amp)
    if args.combine == "adasum" and (args.clip or dtype is torch.float16):
        raise ValueError("--combine adasum combines updates and no gradients: leave out --clip and --amp fp16")
    kind = torch.amp.GradScaler if args.combine == "adasum" else Scaler
    scaler = kind(me.device.type, enabled=dtype is torch.float16)
    return loop.MixedStep(me, dtype, torch.contiguous_format, scaler, args.clip)


class Collectives(loop.Collectives):
    """Ranks together by Horovod. All ranks must call the same method at the same point."""

    def all_reduce(self, sums: Tensor) -> Tensor:
        """The sum of a tensor over all ranks; the argument stays as it is."""
        import horovod.torch as hvd

        return hvd.allreduce(sums, op=hvd.Sum, name="totals")

    def all_gather(self, value: Value) -> list[Value]:
        """Every rank's value, in rank order, on every rank."""
        import horovod.torch as hvd

        return hvd.allgather_object(value, name="gather")

    def broadcast(self, value: Value) -> Value:
        """Rank 0's value, on every rank."""
        import horovod.torch as hvd

        return hvd.broadcast_object(value, root_rank=0, name="share")
