"""Gradients after backward: each rank's own, the average DDP leaves, and one process on the whole batch.

In float64, so that what remains is rounding and nothing else.
"""

import argparse
from copy import deepcopy

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.nn.parallel import DistributedDataParallel

from distlab import process, report

SHOWN = 8


def net() -> nn.Module:
    """A small classifier of 20 numbers into 4 classes."""
    return nn.Sequential(nn.Linear(20, 16), nn.Tanh(), nn.Linear(16, 4)).double()


def gradient(model: nn.Module, inputs: Tensor, labels: Tensor) -> Tensor:
    """All gradients of the mean loss in one vector."""
    model.zero_grad()
    F.cross_entropy(model(inputs), labels).backward()
    return torch.cat([parameter.grad.flatten() for parameter in model.parameters()])


def shares(sizes: list[int], rank: int) -> slice:
    """Where a rank's samples lie in the whole batch."""
    start = sum(sizes[:rank])
    return slice(start, start + sizes[rank])


def main() -> None:
    """Run the experiment on this rank. Reports `weights` and `gradient`."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--batch-size", type=int, default=64, help="samples of one rank, when shares are equal")
    args = parser.parse_args()
    with process.group() as me:
        torch.manual_seed(me.rank)
        bare = net()
        before = bare[0].weight[0, 0].item()
        wrapped = DistributedDataParallel(bare.to(me.device))
        report.log(me, "weights", before=before, after=bare[0].weight[0, 0].item())

        same = args.batch_size
        cases = {"equal": [same] * me.world_size, "unequal": [same // 4 + same * rank for rank in range(me.world_size)]}
        for case, sizes in cases.items():
            dice = torch.Generator().manual_seed(7)
            inputs = torch.randn(sum(sizes), 20, generator=dice, dtype=torch.float64).to(me.device)
            labels = torch.randint(0, 4, (sum(sizes),), generator=dice).to(me.device)
            mine = shares(sizes, me.rank)
            own = gradient(deepcopy(bare), inputs[mine], labels[mine])
            averaged = gradient(wrapped, inputs[mine], labels[mine])
            whole = gradient(deepcopy(bare), inputs, labels)
            report.log(
                me,
                "gradient",
                case=case,
                samples=sizes[me.rank],
                own=own[:SHOWN].tolist(),
                averaged=averaged[:SHOWN].tolist(),
                whole=whole[:SHOWN].tolist(),
                largest=whole.abs().max().item(),
                difference=(averaged - whole).abs().max().item(),
            )


if __name__ == "__main__":
    main()
