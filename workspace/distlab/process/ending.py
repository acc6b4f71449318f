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
from pathlib import Path

from distlab.parent import end_with_parent
from distlab.whole import write_whole

ASK_FOR_STACK = signal.SIGUSR1
NOT_THE_SCRIPT = ("/distlab/agent/", "/distlab/process/", "runpy", "contextlib.py")

_state = {"watching": False, "how": "left", "records": None, "rank": 0, "left": None}


def _write(name: str, text: str) -> None:
    write_whole(Path(_state["records"]) / name, text)


def _record(how: str, **more: object) -> None:
    record = {"rank": _state["rank"], "pid": os.getpid(), "how": how, "time": time.time()} | more
    _write(f"rank{_state['rank']}.ending.json", json.dumps(record))


def raised(error: BaseException) -> None:
    """Record that this rank ends with an error; the first record stands."""
    if not _state["watching"] or _state["how"] == "raised":
        return
    frames = traceback.extract_tb(error.__traceback__)
    # Frames of the launcher and of `with process.group()` do not help the script's author.
    own = [frame for frame in frames if not any(part in frame.filename for part in NOT_THE_SCRIPT)]
    shown = traceback.StackSummary.from_list(own)
    head = ["Traceback (most recent call last):\n"] if own else []
    text = "".join([*head, *shown.format(), *traceback.format_exception_only(error)])
    _state["how"] = "raised"
    _record("raised", type=type(error).__name__, message=str(error), traceback=text.rstrip())


def left(code: object) -> None:
    """Record that this rank called `sys.exit(code)` inside its group, where others may still wait for it."""
    if _state["watching"] and _state["left"] is None:
        said = code if isinstance(code, str) else ""
        status = code if isinstance(code, int) else int(code is not None)
        _state["left"] = {"status": status, "said": said, "time": time.time()}


def completed() -> None:
    """Record that this rank left its group as it should."""
    _state["how"] = "completed"


def _at_exit() -> None:
    # A forked DataLoader worker inherits this hook; only the rank itself may write its record.
    if _state["how"] != "raised" and _state["pid"] == os.getpid():
        _record(_state["how"], **(_state["left"] or {"status": 0}))


def _hook(kind: type[BaseException], error: BaseException, trace: object) -> None:
    if issubclass(kind, KeyboardInterrupt):
        sys.__excepthook__(kind, error, trace)
    else:
        raised(error)


def watch(rank: int) -> None:
    """Record how this rank ends, from now on; a second call changes nothing."""
    folder = os.environ.get("DISTLAB_RECORDS")
    if not folder or _state["watching"]:
        return
    _state.update(watching=True, records=folder, rank=rank, pid=os.getpid())
    end_with_parent()
    stack = (Path(folder) / f"rank{rank}.stack.txt").open("w")
    _state["stack"] = stack
    faulthandler.register(ASK_FOR_STACK, file=stack, all_threads=True)
    # After the handler, since this file tells the launcher that it may send the signal.
    _write(f"rank{rank}.pid", str(os.getpid()))
    sys.excepthook = _hook
    atexit.register(_at_exit)
