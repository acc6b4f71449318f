"""How a rank uses its share of a host: its threads, and the memory that it has freed."""

import ctypes
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress

import torch

M_TRIM_THRESHOLD, M_MMAP_THRESHOLD = -1, -3
# Blocks up to 1 GiB come from the heap, and malloc never returns the heap to the kernel.
LARGEST_KEPT, NEVER = 1 << 30, (1 << 31) - 1


def use_own_cores() -> None:
    """Compute with OMP_NUM_THREADS threads, also in a rank that was forked after torch read it."""
    threads = os.environ.get("OMP_NUM_THREADS", "")
    if threads.isdigit() and int(threads) > 0:
        torch.set_num_threads(int(threads))


def keep_freed_memory() -> None:
    """Let malloc reuse what the last step freed, where by default it returns it to the kernel.

    Activations are large blocks that come and go with each step. Fetched anew each time they cost
    thousands of page faults a step: 8 to 20 % of a small network's time on CPU. Only glibc knows
    how (mallopt(3)); elsewhere nothing changes. GPU memory has torch's own cache.
    """
    with suppress(OSError, AttributeError):
        mallopt = ctypes.CDLL(None).mallopt
        mallopt(M_MMAP_THRESHOLD, LARGEST_KEPT)
        mallopt(M_TRIM_THRESHOLD, NEVER)


@contextmanager
def threads(number: int) -> Iterator[None]:
    """Compute with so many threads for a while, also in Python threads that begin meanwhile."""
    before = torch.get_num_threads()
    torch.set_num_threads(number)
    try:
        yield
    finally:
        torch.set_num_threads(before)
