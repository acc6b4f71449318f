"""What a rank leaves behind when it ends, so that the launcher can blame the right one.

Started by distlab, a rank has DISTLAB_RECORDS: a folder of its host. There it writes how it
ended and, at a signal, the stack of each thread. Without that variable nothing here does anything.
"""

import atexit
import faulthandler
import json
import os
import signal
import sys
import time
import traceback
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import TextIO

from distlab.parent import end_with_parent
from distlab.whole import write_whole

ASK_FOR_STACK = signal.SIGUSR1
NOT_THE_SCRIPT = ("/distlab/agent/", "/distlab/process/", "runpy", "contextlib.py")


@dataclass
class _Watched:
    """What is known of this rank; `pid` and `stack` are set while it is watched."""

    records: Path = Path()
    rank: int = 0
    pid: int | None = None
    how: str = "left"
    left: dict[str, object] | None = None
    stack: TextIO | None = None


_me = _Watched()


def _write(name: str, text: str) -> None:
    write_whole(_me.records / name, text)


def _record(how: str, **more: object) -> None:
    record = {"rank": _me.rank, "pid": os.getpid(), "how": how, "time": time.time()} | more
    _write(f"rank{_me.rank}.ending.json", json.dumps(record))


def raised(error: BaseException) -> None:
    """Record that this rank ends with an error; the first record stands."""
    if _me.pid is None or _me.how == "raised":
        return
    frames = traceback.extract_tb(error.__traceback__)
    # Frames of the launcher and of `with process.group()` do not help the script's author.
    own = [frame for frame in frames if not any(part in frame.filename for part in NOT_THE_SCRIPT)]
    shown = traceback.StackSummary.from_list(own)
    head = ["Traceback (most recent call last):\n"] if own else []
    text = "".join([*head, *shown.format(), *traceback.format_exception_only(error)])
    _me.how = "raised"
    _record("raised", type=type(error).__name__, message=str(error), traceback=text.rstrip())


def left(code: object) -> None:
    """Record that this rank called `sys.exit(code)` inside its group, where others may still wait for it."""
    if _me.pid is not None and _me.left is None:
        said = code if isinstance(code, str) else ""
        status = code if isinstance(code, int) else int(code is not None)
        _me.left = {"status": status, "said": said, "time": time.time()}


def completed() -> None:
    """Record that this rank left its group as it should."""
    _me.how = "completed"


def _at_exit() -> None:
    # A forked DataLoader worker inherits this hook; only the rank itself may write its record.
    if _me.how != "raised" and _me.pid == os.getpid():
        _record(_me.how, **(_me.left or {"status": 0}))


def _hook(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
    if issubclass(kind, KeyboardInterrupt):
        sys.__excepthook__(kind, error, trace)
    else:
        raised(error)


def watch(rank: int) -> None:
    """Record how this rank ends, from now on; a second call changes nothing."""
    folder = os.environ.get("DISTLAB_RECORDS")
    if not folder or _me.pid is not None:
        return
    _me.records, _me.rank, _me.pid = Path(folder), rank, os.getpid()
    end_with_parent()
    _me.stack = (_me.records / f"rank{rank}.stack.txt").open("w")
    faulthandler.register(ASK_FOR_STACK, file=_me.stack, all_threads=True)
    # After the handler, since this file tells the launcher that it may send the signal.
    _write(f"rank{rank}.pid", str(os.getpid()))
    sys.excepthook = _hook
    atexit.register(_at_exit)
