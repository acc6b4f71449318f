"""Processes that must not outlive the one that started them (Linux only; elsewhere nothing is asked)."""

import ctypes
import os
import signal
import sys

PR_SET_PDEATHSIG, PR_SET_CHILD_SUBREAPER = 1, 36


def _prctl(option: int, value: int) -> None:
    if sys.platform == "linux":
        ctypes.CDLL(None, use_errno=True).prctl(option, value)


def end_with_parent(with_signal: int = signal.SIGKILL, parent: int | None = None) -> None:
    """Ask the kernel to end this process when the one that started it is gone.

    Args:
        parent: who started it, for a process that has just been forked: it ends at once when that
            one was gone before the kernel was asked.
    """
    _prctl(PR_SET_PDEATHSIG, int(with_signal))
    if sys.platform == "linux" and parent is not None and os.getppid() != parent:
        os._exit(1)


def adopt_orphans() -> None:
    """Make this process the parent of what its descendants leave behind, which would be init's otherwise."""
    _prctl(PR_SET_CHILD_SUBREAPER, 1)
