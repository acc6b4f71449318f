"""Training with Horovod: its options, its step, and what its ranks do together.

Sergeev and Del Balso 2018, Horovod: fast and easy distributed deep learning in TensorFlow, arXiv
1802.05799. Nothing here imports Horovod before it is used.
"""

import argparse
from typing import TypeVar

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from distlab.loop.mixed import MixedStep
from distlab.loop.options import options, real
from distlab.loop.together import Together
from distlab.process import Rank, amp_dtype

Value = TypeVar("Value")


def horovod_options(description: str | None = None) -> argparse.ArgumentParser:
    """The options of every training script, and those of Horovod."""
    parser = options(description)
    add = parser.add_argument
    add("--compress", choices=("none", "fp16"), default="none", help="type in which gradients travel")
    add("--combine", choices=("average", "adasum"), default="average", help="how gradients of ranks become one")
    add("--amp", choices=("bf16", "fp16", "off"), default="off", help="type of the forward pass")
    add("--clip", type=real(above=0), metavar="NORM", help="shorten gradients longer than this")
    return parser


def combining(args: argparse.Namespace) -> dict:
    """How hvd.DistributedOptimizer makes one gradient of many, from `horovod_options`.

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


class HorovodStep(MixedStep):
    """A `step` for `fit` in any precision: gradients are averaged before anyone looks at them."""

    def __init__(self, me: Rank, args: argparse.Namespace) -> None:
        dtype = amp_dtype(me, args.amp)
        scaler = torch.amp.GradScaler(me.device.type, enabled=dtype is torch.float16)
        super().__init__(me, dtype, torch.contiguous_format, scaler, args.clip)

    def update(self, model: nn.Module, optimizer: Optimizer) -> None:
        """Average, unscale, clip and step, in this order.

        A scaler that finds an infinite gradient leaves the step out, and with it the averaging that
        is in it; then gradients of this update would meet those of the next.
        """
        optimizer.synchronize()
        with optimizer.skip_synchronize():
            super().update(model, optimizer)


class HorovodTogether(Together):
    """Ranks together by Horovod. All ranks must call the same method at the same point."""

    def totals(self, sums: Tensor) -> Tensor:
        """The sum of a tensor over all ranks; the argument stays as it is."""
        import horovod.torch as hvd

        return hvd.allreduce(sums, op=hvd.Sum, name="totals")

    def gather(self, value: Value) -> list[Value]:
        """Every rank's value, in rank order, on every rank."""
        import horovod.torch as hvd

        return hvd.allgather_object(value, name="gather")

    def share(self, value: Value) -> Value:
        """Rank 0's value, on every rank."""
        import horovod.torch as hvd

        return hvd.broadcast_object(value, root_rank=0, name="share")
