"""Inside a rank of a check: runs the attendee's file, and reports where it failed or stood still."""

import importlib.util
import inspect
import linecache
import math
import os
import sys
import threading
import time
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType
from typing import Any, NoReturn

import torch

from distlab import report
from distlab.process import Placement, read_placement

# When a rank exits, the launcher stops the others: before it does, it waits until they have reported, too.
# Ranks fail at the same line within moments; how long each stood still is counted from its own start.
LINGER_SECONDS = {"raised": 0.5, "stuck": 3.0}


def place_in(file: str, stack: traceback.StackSummary) -> dict[str, Any]:
    """The innermost line of the attendee's file on a stack, as `line` and `code`; empty when there is none."""
    own = [frame for frame in stack if frame.filename == file]
    if not own:
        return {}
    return {"line": own[-1].lineno, "code": linecache.getline(file, own[-1].lineno or 0).strip()}


class Attempt:
    """One rank's run of the attendee's file.

    Records: 'finished', 'missing' (a function is not there or takes other arguments), 'raised', 'stuck'.

    Attributes:
        doing: what a probe adds to the records 'raised' and 'stuck'.
    """

    def __init__(self, me: Placement, file: str, seconds: float) -> None:
        self.me, self.file, self.seconds = me, file, seconds
        self.doing: dict[str, Any] = {}
        self._module: ModuleType | None = None

    @classmethod
    def asked_for(cls, patience: float = math.inf) -> "Attempt":
        """The attempt that this rank was started for, as its command line says it: PROBE FILE SECONDS.

        Args:
            patience: the most seconds that a stand-still may take.
        """
        # Ranks of a check are small and many: more threads would only fight.
        torch.set_num_threads(1)
        return cls(read_placement(), sys.argv[1], min(float(sys.argv[2]), patience))

    @contextmanager
    def watched(self) -> Iterator[None]:
        """Report an error, or a stand-still of more than `seconds`, and end this rank."""
        done = threading.Event()
        threading.Thread(target=self._watch, args=[done, threading.get_ident()], daemon=True).start()
        try:
            yield
            report.log(self.me, "finished")
        except BaseException as error:
            where = place_in(self.file, traceback.extract_tb(error.__traceback__))
            report.log(self.me, "raised", type=type(error).__name__, message=str(error), **where, **self.doing)
            time.sleep(LINGER_SECONDS["raised"])
            raise
        finally:
            done.set()

    def _watch(self, done: threading.Event, thread: int) -> None:
        if done.wait(self.seconds):
            return
        stack = traceback.extract_stack(sys._current_frames()[thread])
        report.log(self.me, "stuck", seconds=self.seconds, **place_in(self.file, stack), **self.doing)
        time.sleep(LINGER_SECONDS["stuck"])
        os._exit(1)

    def load(self) -> None:
        """Import the attendee's file, which must not train yet."""
        sys.path.insert(0, str(Path(self.file).parent))
        # An attendee's folder keeps what the attendee put there, and nothing else.
        sys.dont_write_bytecode = True
        spec = importlib.util.spec_from_file_location("attempt", self.file)
        # `check` starts a rank only for a file of Python's.
        assert spec and spec.loader
        self._module = importlib.util.module_from_spec(spec)
        # Loading workers find functions by the module's name.
        sys.modules["attempt"] = self._module
        spec.loader.exec_module(self._module)

    def function(self, name: str, *parameters: str) -> Callable[..., Any]:
        """A function of the attendee's file that can be called with these arguments by name."""
        found: Callable[..., Any] | None = getattr(self._module, name, None)
        wanted = f"{name}({', '.join(parameters)})"
        if not callable(found):
            self._missing(f"has no function {wanted}")
        signature = inspect.signature(found)
        try:
            signature.bind(**dict.fromkeys(parameters))
        except TypeError:
            self._missing(f"has {name}({', '.join(signature.parameters)}), which cannot be called as {wanted}")
        return found

    def replace(self, name: str, by: Callable[..., Any]) -> None:
        """Let the other functions of the attendee's file call another one by this name."""
        setattr(self._module, name, by)

    def _missing(self, what: str) -> NoReturn:
        report.log(self.me, "missing", what=what)
        raise SystemExit(1)
