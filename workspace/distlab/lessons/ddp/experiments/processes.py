"""Two Python threads beside two ranks: who counts faster, and who sees whose variables."""

import argparse
import os
import threading
import time
from collections.abc import Callable

import torch
import torch.distributed as dist

from distlab import process, report

ROUNDS = 3
board: dict[str, str | None] = {"written by": None}


def count(steps: int) -> None:
    """Work that holds the interpreter all the time."""
    while steps:
        steps -= 1


def seconds(work: Callable[[], None]) -> float:
    """Wall time of some work."""
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


def slowest(own: float) -> float:
    """The largest of all ranks' numbers, on every rank."""
    largest = torch.tensor(own)
    dist.all_reduce(largest, dist.ReduceOp.MAX)
    return largest.item()


def in_two_threads(steps: int) -> None:
    """The same count twice, in two threads of this process."""
    threads = [threading.Thread(target=count, args=(steps,)) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def main() -> None:
    """Run the experiment on this rank. Reports `count`."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=2_000_000, help="how far to count")
    steps = parser.parse_args().steps
    with process.group() as me:
        if me.is_main:
            board["written by"] = "rank 0"
        rounds = []
        for _ in range(ROUNDS):
            alone = threads = 0.0
            if me.is_main:
                # The others wait, asleep, so these two have the machine to themselves.
                alone, threads = seconds(lambda: count(steps)), seconds(lambda: in_two_threads(steps))
            dist.barrier()
            rounds.append((alone, threads, slowest(seconds(lambda: count(steps)))))
        # The best round is the one that other work on this machine disturbed least.
        alone, threads, together = map(min, zip(*rounds, strict=True))
        report.log(
            me,
            "count",
            pid=os.getpid(),
            board=board["written by"],
            alone=alone or None,
            threads=threads or None,
            together=together,
        )


if __name__ == "__main__":
    main()
