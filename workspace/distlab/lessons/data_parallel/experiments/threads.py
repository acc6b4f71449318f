"""Two threads of one process: when each is at work, in Python, in small and in large operations of torch.

On the CPU, also where there are GPUs: it is the interpreter that is looked at.
"""

import argparse
import threading
import time
from collections.abc import Callable
from statistics import quantiles

import torch
from torch import nn

from distlab import process, report

THREADS, ROUNDS = 2, 6
# A pass that takes this many times its usual time was mostly waiting.
WAITED = 2


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


def passes(work: Callable[[], None], number: int, begin: float) -> list[tuple[float, float]]:
    """Do some work again and again: (start, end) of each time, in seconds since `begin`."""
    done = []
    for _ in range(number):
        start = time.perf_counter()
        work()
        done.append((start - begin, time.perf_counter() - begin))
    return done


def passes_in(work: Callable[[], None], seconds: float) -> int:
    """How often one thread can do it in so many seconds."""
    started, number = time.perf_counter(), 0
    while time.perf_counter() - started < seconds:
        work()
        number += 1
    return number


def together(work: Callable[[], None], number: int) -> tuple[float, list[list[tuple[float, float]]]]:
    """Two threads that both do it so often: the seconds they take, and each one's passes."""
    results: list = [None] * THREADS
    gate = threading.Barrier(THREADS + 1)

    def worker(thread: int) -> None:
        gate.wait()
        results[thread] = passes(work, number, begin)

    threads = [threading.Thread(target=worker, args=[thread]) for thread in range(THREADS)]
    for thread in threads:
        thread.start()
    begin = time.perf_counter()
    gate.wait()
    for thread in threads:
        thread.join()
    return time.perf_counter() - begin, results


def spans(done: list[tuple[float, float]], once: float) -> list[list[float]]:
    """Stretches of time at work, in milliseconds; passes that follow each other become one."""
    found: list[list[float]] = []
    joined = False
    for start, end in done:
        busy = end - start <= WAITED * once
        if busy and joined:
            found[-1][1] = 1000 * end
        elif busy:
            found.append([1000 * start, 1000 * end])
        joined = busy
    return found


def main() -> None:
    """Run the experiment on this rank. Reports `threads`."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=0.05, help="work of each thread")
    args = parser.parse_args()
    with process.alone() as me:
        torch.set_num_threads(1)
        for kind, work in WORK.items():
            number = max(passes_in(work, args.seconds) for _ in range(2))
            single, both = [], []
            for _ in range(ROUNDS):
                single.append(passes(work, number, time.perf_counter()))
                both.append(together(work, number))
            # Take the rounds that other work on the machine disturbed least.
            quickest = min(single, key=lambda done: done[-1][1])
            once = quantiles((end - start for start, end in quickest), n=10)[0]
            taken, done = min(both, key=lambda run: run[0])
            when = [spans(own, once) for own in done]
            report.log(me, "threads", kind=kind, alone=quickest[-1][1], together=taken, spans=when)


if __name__ == "__main__":
    main()
