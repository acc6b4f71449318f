"""Gradient accumulation: how many bytes travel for one update, and whether its gradients are the same."""

import argparse
from contextlib import nullcontext
from copy import deepcopy

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.algorithms.ddp_comm_hooks.default_hooks import allreduce_hook
from torch.nn import functional as F
from torch.nn.parallel import DistributedDataParallel

from distlab import process, report

# How the microbatches before the last one are treated.
WAYS = ("no_sync left out", "no_sync around backward only", "no_sync around forward and backward")


def counting_hook(traffic: list[int], bucket: dist.GradBucket) -> torch.futures.Future[Tensor]:
    """DDP's own all-reduce, with the bytes it is given written down."""
    traffic.append(bucket.buffer().nbytes)
    return allreduce_hook(None, bucket)


def accumulate(
    model: DistributedDataParallel, way: str, inputs: Tensor, labels: Tensor, microbatches: int, traffic: list[int]
) -> list[int]:
    """Add up the gradients of microbatches; return the bytes handed over in each."""
    sent = []
    for number, (x, y) in enumerate(zip(inputs.chunk(microbatches), labels.chunk(microbatches), strict=True)):
        last = number == microbatches - 1
        around = nullcontext if last or way == WAYS[0] else model.no_sync
        forward, backward = (nullcontext, around) if way == WAYS[1] else (around, nullcontext)
        before = sum(traffic)
        with forward():
            loss = F.cross_entropy(model(x), y) / microbatches
            with backward():
                loss.backward()
        sent.append(sum(traffic) - before)
    return sent


def main() -> None:
    """Run the experiment on this rank. Reports `accumulation`."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--microbatches", type=int, default=4, help="microbatches of one update")
    args = parser.parse_args()
    with process.group() as me:
        torch.manual_seed(0)
        first = nn.Sequential(nn.Linear(64, 256), nn.Tanh(), nn.Linear(256, 10)).double().to(me.device)
        torch.manual_seed(1 + me.rank)
        inputs = torch.randn(16 * args.microbatches, 64, dtype=torch.float64, device=me.device)
        labels = torch.randint(0, 10, (16 * args.microbatches,), device=me.device)
        reference = None
        for way in WAYS:
            model, traffic = DistributedDataParallel(deepcopy(first)), []
            model.register_comm_hook(traffic, counting_hook)
            sent = accumulate(model, way, inputs, labels, args.microbatches, traffic)
            gradient = torch.cat([parameter.grad.flatten() for parameter in model.parameters()])
            reference = gradient if reference is None else reference
            report.log(
                me,
                "accumulation",
                way=way,
                bytes=sent,
                all_reduces=len(traffic),
                difference=(gradient - reference).abs().max().item(),
            )


if __name__ == "__main__":
    main()
