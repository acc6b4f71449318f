"""Two threads of one process: when each is at work, in Python, in small and in large operations of torch.

On the CPU, also where there are GPUs: it is the interpreter that is looked at.
"""

import argparse
import threading
import time
from collections.abc import Callable

import torch
from torch import nn

from distlab import process, report

THREADS, ROUNDS = 2, 3
# A slice that had the processor for less than this share of its time was waiting.
AT_WORK = 0.5


def in_python() -> None:
    """Work that needs the interpreter all the time."""
    total = 0
    for number in range(4_000):
        total += number


@torch.no_grad()
def in_small_layers() -> None:
    """A pass through layers so small that Python's part takes longer than torch's."""
    SMALL(VECTOR)


def in_large_layers() -> None:
    """An operation that computes for long, and needs no interpreter while it does."""
    torch.mm(LARGE, LARGE)


VECTOR, LARGE = torch.ones(1, 16), torch.ones(400, 400)
SMALL = nn.Sequential(*(nn.Linear(16, 16) for _ in range(4)))
WORK = {"Python": in_python, "small layers": in_small_layers, "large layers": in_large_layers}


def slices(work: Callable[[], None], seconds: float, begin: float) -> list[tuple[float, float, bool]]:
    """Work for some seconds of this thread's own processor time: (start, end, at work) of each slice, in seconds."""
    done, until = [], time.thread_time() + seconds
    while (used := time.thread_time()) < until:
        start = time.perf_counter()
        work()
        end = time.perf_counter()
        done.append((start - begin, end - begin, time.thread_time() - used >= AT_WORK * (end - start)))
    return done


def spans(done: list[tuple[float, float, bool]]) -> list[list[float]]:
    """Stretches of time at work, in milliseconds; slices that follow each other become one."""
    found: list[list[float]] = []
    joined = False
    for start, end, busy in done:
        if busy and joined:
            found[-1][1] = 1000 * end
        elif busy:
            found.append([1000 * start, 1000 * end])
        joined = busy
    return found


def together(work: Callable[[], None], seconds: float) -> tuple[float, list[list[list[float]]]]:
    """Two threads that work at the same time: the seconds they take, and when each was at work."""
    results: list = [None] * THREADS
    gate = threading.Barrier(THREADS + 1)

    def worker(number: int) -> None:
        gate.wait()
        results[number] = slices(work, seconds, begin)

    threads = [threading.Thread(target=worker, args=[number]) for number in range(THREADS)]
    for thread in threads:
        thread.start()
    begin = time.perf_counter()
    gate.wait()
    for thread in threads:
        thread.join()
    return time.perf_counter() - begin, [spans(one) for one in results]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=0.08, help="processor time of each thread")
    args = parser.parse_args()
    with process.alone() as me:
        torch.set_num_threads(1)
        for kind, work in WORK.items():
            work()
            taken, when = min((together(work, args.seconds) for _ in range(ROUNDS)), key=lambda one: one[0])
            report.log(me, "threads", kind=kind, alone=args.seconds, together=taken, spans=when)


if __name__ == "__main__":
    main()
