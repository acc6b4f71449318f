"""The time of an all-reduce by size: PyTorch's own beside a ring made of messages, and whether both agree."""

import argparse
import statistics
from collections.abc import Callable

import torch
import torch.distributed as dist
from torch import Tensor

from distlab import process, report
from distlab.lessons.messages.experiments.ring import SOLUTION, load_ring

KILOBYTE = 1024
SIZES = [KILOBYTE * 4**power for power in range(9)]
HELD_OUT = 6 * KILOBYTE * KILOBYTE
FEWEST, MOST = 3, 41


def slowest(seconds: float, device: torch.device) -> float:
    """The largest of all ranks' times, the same number on each."""
    largest = torch.tensor(seconds, dtype=torch.float64, device=device)
    dist.all_reduce(largest, dist.ReduceOp.MAX)
    return largest.item()


def once(call: Callable[[Tensor], object], tensor: Tensor) -> float:
    """Seconds of one call, from when all ranks are ready until the last one is done."""
    dist.barrier()
    start = process.now(tensor.device)
    call(tensor)
    return slowest(process.now(tensor.device) - start, tensor.device)


def median(call: Callable[[Tensor], object], tensor: Tensor, budget: float) -> tuple[float, int]:
    """Median seconds over as many calls as fit the budget (in seconds), and how many that were.

    Never fewer than three. All ranks make the same number of calls.
    """
    once(call, tensor)
    repeats = min(MOST, max(FEWEST, int(budget / once(call, tensor))))
    return statistics.median(once(call, tensor) for _ in range(repeats)), repeats


def difference(ring: Callable[[Tensor], object], tensor: Tensor, rank: int) -> float:
    """The largest difference between both results. Whole numbers, so that the order of summing does not matter.

    What was in the tensor is lost.
    """
    # One tensor at a time, changed in place: on a small machine the largest four fill most of the memory.
    torch.arange(len(tensor), out=tensor).add_(rank).remainder_(8)
    expected = tensor.clone()
    dist.all_reduce(expected)
    ring(tensor)
    return expected.sub_(tensor).abs_().max().item()


def main() -> None:
    """Run the experiment on this rank. Reports `time`."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--file", default=SOLUTION, help="with the function ring_all_reduce(tensor)")
    parser.add_argument("--sizes", type=int, nargs="+", default=SIZES, help="in bytes")
    parser.add_argument("--held-out", type=int, default=HELD_OUT, help="one size more, in bytes, to test a fit with")
    parser.add_argument("--budget", type=float, default=0.4, help="seconds for the repeats of one size and way")
    args = parser.parse_args()
    with process.group() as me:
        ring = load_ring(args.file)
        for size in [*args.sizes, args.held_out]:
            tensor = torch.empty(size // 4, device=me.message_device)
            off = difference(ring, tensor, me.rank)
            # Zeros stay zeros, however often they are summed.
            tensor.zero_()
            for way, call in (("all_reduce", dist.all_reduce), ("ring", ring)):
                seconds, repeats = median(call, tensor, args.budget)
                at = {"way": way, "size": size, "held_out": size == args.held_out and size not in args.sizes}
                report.log(me, "time", **at, seconds=seconds, repeats=repeats, difference=off)


if __name__ == "__main__":
    main()
