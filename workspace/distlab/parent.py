"""Processes that must not outlive the one that started them."""

import ctypes
import os
import signal
import sys

PR_SET_PDEATHSIG = 1


def end_with_parent(with_signal: int = signal.SIGKILL, parent: int | None = None) -> None:
    """Ask the kernel to end this process when the one that started it is gone (Linux only).

    Args:
        parent: who started it, for a process that has just been forked: it ends at once when that
            one was gone before the kernel was asked.
    """
    if sys.platform == "linux":
        ctypes.CDLL(None, use_errno=True).prctl(PR_SET_PDEATHSIG, int(with_signal))
        if parent is not None and os.getppid() != parent:
            os._exit(1)
