"""A process that we start and serve until it ends, or until we are told to end."""

import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

STOP_SECONDS, HURRIED_SECONDS = 10.0, 2.0
# How late the end of a process that needs no more looks may be noticed.
UNWATCHED_SECONDS = 0.1
ENDING = (signal.SIGTERM, signal.SIGHUP)


def end_child(child: subprocess.Popen[bytes], seconds: float = STOP_SECONDS) -> None:
    """Ask a process to end, and end it when it has not after so many seconds; one that has ended is no trouble.

    A further Ctrl-C meanwhile leaves it two seconds more, and never leaves it behind.
    """
    child.terminate()
    until = time.monotonic() + seconds
    while True:
        try:
            child.wait(max(0.0, until - time.monotonic()))
            return
        except KeyboardInterrupt:
            until = min(until, time.monotonic() + HURRIED_SECONDS)
        except subprocess.TimeoutExpired:
            child.kill()
            until = time.monotonic() + STOP_SECONDS


@contextmanager
def interrupted_by_signals() -> Iterator[None]:
    """A closed terminal or `kill` raises KeyboardInterrupt, as Ctrl-C does; what nohup has ignored stays ignored.

    Raises:
        ValueError: this is not the main thread, which alone may say so.
    """
    before = {number: signal.getsignal(number) for number in ENDING}
    before = {number: handler for number, handler in before.items() if handler != signal.SIG_IGN}
    for number in before:
        signal.signal(number, signal.default_int_handler)
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def serve_child(
    start: Callable[[], subprocess.Popen[bytes]], look: Callable[[subprocess.Popen[bytes]], float | None], name: str
) -> int | None:
    """Start a process and look after it until it ends, or until Ctrl-C, SIGTERM or SIGHUP, which end it.

    Args:
        look: called again and again while it runs; says after how many seconds to look next, or
            None when there is nothing more to look after.
        name: what ends, in the line that says so.

    Returns:
        Its exit status, or None if it was ended from here.

    Raises:
        Whatever `look` raises; the process is ended.
        ValueError: this is not the main thread.
    """
    with interrupted_by_signals():
        child = start()
        try:
            pause: float | None = 0.0
            while child.poll() is None:
                if pause is not None:
                    pause = look(child)
                # Never child.wait(): a signal that comes just before it would be heeded only when the child ends.
                time.sleep(UNWATCHED_SECONDS if pause is None else pause)
            return child.returncode
        except KeyboardInterrupt:
            print(f"\n{name} stops", flush=True)
            return None
        finally:
            end_child(child)
