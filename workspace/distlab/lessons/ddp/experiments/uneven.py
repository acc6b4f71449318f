"""Ranks with different numbers of batches: rank 0 has the most, each next one has one fewer."""

import argparse
import time
from contextlib import nullcontext

import torch
import torch.distributed as dist
from torch import nn
from torch.nn import functional as F
from torch.nn.parallel import DistributedDataParallel
from torch.optim import SGD

from distlab import process, report


def main() -> None:
    """Run the experiment on this rank. Reports `plan`, `batch` and `done`."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--batches", type=int, default=8, help="of rank 0")
    parser.add_argument("--join", action=argparse.BooleanOptionalAction, default=False)
    args = parser.parse_args()
    with process.group() as me:
        torch.manual_seed(me.rank)
        model = DistributedDataParallel(nn.Sequential(nn.Linear(64, 64), nn.Tanh(), nn.Linear(64, 10)).to(me.device))
        optimizer = SGD(model.parameters(), lr=0.1)
        batches = [(torch.randn(32, 64), torch.randint(0, 10, (32,))) for _ in range(args.batches - me.rank)]
        dist.barrier()
        start = time.perf_counter()
        report.log(me, "plan", batches=len(batches))
        with model.join() if args.join else nullcontext():
            for number, (inputs, labels) in enumerate(batches, 1):
                F.cross_entropy(model(inputs.to(me.device)), labels.to(me.device)).backward()
                optimizer.step()
                optimizer.zero_grad()
                report.log(me, "batch", number=number, seconds=time.perf_counter() - start)
                # A real batch takes its time; without this all bars would be slivers.
                time.sleep(0.05)
        first = next(model.parameters()).detach()
        report.log(me, "done", seconds=time.perf_counter() - start, weights=first.double().sum().item())


if __name__ == "__main__":
    main()
