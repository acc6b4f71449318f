"""%%px: a cell that runs in all live ranks, and how it shows what they said."""

import re
import time
from collections.abc import Callable, Mapping
from typing import Any

from ipyparallel.error import RemoteError
from IPython import get_ipython
from IPython.core.error import UsageError
from IPython.core.magic import no_var_expand
from IPython.core.magic_arguments import argument, magic_arguments, parse_argstring
from IPython.display import display

from distlab.ranks.live import Answers, LiveRanks, RanksError

COLOUR, RULE = re.compile(r"\x1b\[[0-9;]*m"), re.compile("-+")
REMIND_SECONDS = 10.0
# A rank in Python code stops at once, one inside a collective only when that times out.
INTERRUPT_SECONDS = 3.0


class CellFailed(RanksError):
    """A cell failed in a rank, whose traceback has been shown."""


def register(current: Callable[[], LiveRanks]) -> None:
    """Make %%px known to the notebook, if this is one.

    Args:
        current: gives the live ranks, or raises.
    """
    shell = get_ipython()
    if shell is None:
        return

    @no_var_expand
    @magic_arguments()
    @argument("--ranks", metavar="0,2", help="only these ranks")
    @argument("--host", metavar="NODE", help="only the ranks of this host")
    @argument("--timeout", type=float, metavar="S", help="interrupt the ranks after so many seconds")
    def px(line: str, cell: str | None = None) -> None:
        """Run a cell in every live rank and show what each says."""
        if cell is None:
            line, cell = "", line
        args = parse_argstring(px, line)
        live = current()
        run_cell(live, cell, _chosen(live, args.ranks, args.host), args.timeout)

    shell.register_magic_function(px, "line_cell", "px")


def _chosen(live: LiveRanks, ranks: str | None, host: str | None) -> list[int]:
    if ranks and host:
        raise UsageError("%%px takes --ranks or --host, not both")
    if host:
        return live.ranks_on(host)
    if not ranks:
        return list(range(live.size))
    try:
        chosen = sorted({int(word) for word in ranks.split(",")})
    except ValueError:
        raise UsageError(f"%%px --ranks {ranks}: write numbers with commas, such as --ranks 0,2") from None
    if not set(chosen) <= set(range(live.size)):
        raise UsageError(f"%%px --ranks {ranks}: there are ranks 0 to {live.size - 1}")
    return chosen


def run_cell(live: LiveRanks, code: str, ranks: list[int], timeout: float | None = None) -> None:
    """Run code in ranks, print what they say by rank, and fail as the first of them that failed.

    Args:
        timeout: seconds after which the ranks are interrupted; None waits for as long as it takes.

    Raises:
        CellFailed: it failed in a rank, or was not over in time.
        KeyboardInterrupt: it was interrupted, and all ranks came back.
        RanksError: the ranks have died.
    """
    remind, seconds = _Reminder(live), timeout or float("inf")
    before = live.wait(live.earlier(ranks), seconds, remind)
    if before:
        raise CellFailed(f"{_names(live, before)} still at an earlier cell after {timeout:g} s")
    answers = live.submit(code, ranks)
    interrupted = None
    try:
        busy = live.wait(answers, seconds, remind)
    except KeyboardInterrupt as error:
        busy, interrupted = [rank for rank, answer in answers.items() if not answer.done()], error
    stuck = _bring_back(live, answers) if busy else []
    for rank, answer in answers.items():
        _show(live.name(rank), answer.metadata)
    if stuck:
        raise CellFailed(
            f"{_names(live, stuck)} cannot be interrupted inside torch and will be back when the group's time is up. "
            "ranks.stop() and ranks.start() begin anew at once"
        )
    if interrupted:
        raise interrupted
    if busy:
        raise CellFailed(f"{_names(live, busy)} not done after {timeout:g} s, so all were interrupted")
    _raise_first(live, answers)


class _Reminder:
    """Prints now and then which ranks are not done."""

    def __init__(self, live: LiveRanks) -> None:
        self._live, self._next = live, time.monotonic() + REMIND_SECONDS

    def __call__(self, busy: list[int]) -> None:
        if busy and time.monotonic() > self._next:
            self._next += REMIND_SECONDS
            print(f"waiting for {_names(self._live, busy)}", flush=True)


def _names(live: LiveRanks, ranks: list[int]) -> str:
    return ", ".join(map(live.name, ranks))


def _bring_back(live: LiveRanks, answers: Answers) -> list[int]:
    """Interrupt the ranks; those that did not come back."""
    live.interrupt()
    return live.wait(answers, INTERRUPT_SECONDS)


def _show(name: str, said: Mapping[str, Any]) -> None:
    """What one rank printed and displayed, and the value of its last line."""
    for stream in ("stdout", "stderr"):
        _say(name, said[stream])
    for shown in [*said["outputs"], said["execute_result"]]:
        data = (shown or {}).get("data", {})
        if any(kind.startswith("image/") for kind in data):
            _say(name, "a picture")
            display(data, metadata=shown["metadata"], raw=True)
        else:
            _say(name, data.get("text/plain", ""))


def _say(name: str, text: str) -> None:
    for line in text.splitlines():
        print(f"{name} | {line}")


def _raise_first(live: LiveRanks, answers: Answers) -> None:
    """Show the traceback of the rank that failed first, and what the others say in a line each."""
    failed = []
    for rank, answer in answers.items():
        try:
            answer.get(0)
        except RemoteError as error:
            failed.append((answer.metadata["completed"], rank, error))
    if not failed:
        return
    (_, first, why), *others = sorted(failed, key=lambda failure: failure[:2])
    print(f"{live.name(first)} failed first:\n{_short(why.traceback)}")
    same = [rank for _, rank, other in others if _words(other) == _words(why)]
    if same:
        print(f"The same on {_names(live, sorted(same))}.")
    for _, rank, other in others:
        if rank not in same:
            print(f"{live.name(rank)} then: {_words(other)}")
    raise CellFailed(f"{live.name(first)}: {_words(why)}")


def _words(error: RemoteError) -> str:
    return f"{error.ename}: {error.evalue}".splitlines()[0].rstrip(": ")


def _short(traceback: str) -> str:
    """Where in the cell it failed, without colours and ipyparallel's two lines of heading."""
    lines = [line for line in COLOUR.sub("", traceback).splitlines() if line.strip() and not RULE.fullmatch(line)]
    return "\n".join(line for line in lines if "Traceback (most recent call last)" not in line)
