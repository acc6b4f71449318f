"""Which rank is to blame, and how to say it once."""

import re
import signal
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from distlab.launchers import ERRORS

# How a rank fails because its peer is gone: NCCL and gloo say it in these words, and torch raises
# these types. The same words from a connection that the script made itself are its own failure.
PEER_LOST = re.compile(
    r"closed by peer|reset by peer|Broken pipe|Connection refused|recvValueOrThrow|timed? ?out waiting"
    r"|Socket closed|remote process exited|unhandled system error|Timed out|connectFullMesh",
    re.IGNORECASE,
)
TIMED_OUT = re.compile(r"timed? ?out", re.IGNORECASE)
NEVER_MET = "connectFullMesh"
NEVER_CAME = re.compile(r"did not join within|found nobody on|does not find the ranks' store")
GROUP_ERRORS = {"DistBackendError", "DistNetworkError", "DistStoreError", "DistError", *ERRORS}


@dataclass(frozen=True)
class Ending:
    """What is known of how a rank ended.

    `status` is None when the rank did not end by itself. `record` is the rank's own report of its end,
    empty without one; `vanished` is True when it ended by itself and left no report.
    """

    rank: int
    host: str
    status: int | None
    record: Mapping[str, Any]
    held: str = ""
    vanished: bool = False

    def __str__(self) -> str:
        return f"rank {self.rank} on {self.host}"


def _raised(end: Ending) -> bool:
    return end.record.get("how") == "raised"


def exit_status(end: Ending) -> int:
    """A rank's exit status as its host saw it, or as the rank itself recorded it."""
    return end.status or int(end.record.get("status", 0))


def lost_a_peer(end: Ending) -> bool:
    """True when a rank failed only because another was gone."""
    if not _raised(end):
        return False
    kind, message = end.record["type"], end.record["message"]
    if kind in GROUP_ERRORS:
        return True
    return bool((kind == "RuntimeError" and PEER_LOST.search(message)) or NEVER_CAME.search(message))


def _signal_name(status: int) -> str:
    try:
        return signal.Signals(-status).name
    except ValueError:
        return f"signal {-status}"


def blame(ends: list[Ending], lost_hosts: Mapping[str, str] | None = None) -> str | None:
    """One message for the rank or host that failed first, with its traceback; None when all went well.

    Ranks that only lost their peer come last, and a rank that left early with status 0 is named
    though it never failed.

    Args:
        lost_hosts: what to say of each host that was lost.
    """
    raised = sorted((end for end in ends if _raised(end)), key=lambda end: end.record["time"])
    own = [end for end in raised if not lost_a_peer(end)]
    if own:
        return _describe(own[0])
    # SIGTERM comes last, since a launcher ends the other ranks by it.
    killed = [end for end in ends if (end.status or 0) < 0 and not _raised(end)]
    killed.sort(key=lambda end: end.status == -signal.SIGTERM)
    if killed and killed[0].status != -signal.SIGTERM:
        return _describe_killed(killed[0])
    exited = [end for end in ends if exit_status(end) > 0 and not _raised(end)]
    if exited:
        return _describe_exit(exited[0])
    for said in (lost_hosts or {}).values():
        return said
    early = _left_early(ends)
    if raised and early:
        return (
            f"{early} left early with status 0, "
            f"while {raised[0]} still waited for it: every rank must take the same steps"
        )
    if raised and NEVER_MET in raised[0].record["message"]:
        return (
            f"{raised[0]} cannot connect to the other ranks: do their hosts meet on the interface in "
            f"GLOO_SOCKET_IFNAME? Unset, it is chosen for you.\n{_describe(raised[0])}"
        )
    ended = [end for end in ends if end.status == -signal.SIGTERM or (end.status is None and not end.vanished)]
    absent = [end for end in ended if not end.record]
    # When one rank gives up waiting, the others lose it as a peer, and their errors may come first.
    tired = next((end for end in raised if TIMED_OUT.search(end.record["message"])), None)
    if absent and tired:
        names = " and ".join(map(str, absent))
        return f"{names} did not take part in what {tired} waited for.\n{_describe(tired)}"
    if killed:
        return _describe_killed(killed[0])
    unseen = next((end for end in ends if end.vanished), None)
    if unseen:
        return f"{unseen} vanished without a word: os._exit() ends a process unseen; leave with sys.exit()"
    return _describe(raised[0]) if raised else None


def _left_early(ends: list[Ending]) -> Ending | None:
    left = [end for end in ends if end.record.get("how") == "left"]
    unseen = [end for end in ends if end.vanished and not end.status]
    return min(left, key=lambda end: end.record["time"], default=next(iter(unseen), None))


def _describe(end: Ending) -> str:
    record = end.record
    return f"{end} raised {record['type']}: {record['message']}\n{record['traceback']}"


def _describe_killed(end: Ending) -> str:
    hint = " Was memory short?" if end.status == -signal.SIGKILL else ""
    stack = trim_stack(end.held)
    return f"{end} was killed by {_signal_name(exit_status(end))}.{hint}" + (stack and f"\n{stack}")


def _describe_exit(end: Ending) -> str:
    said = end.record.get("said")
    return f"{end} ended with status {exit_status(end)}" + (said and f": {said}" or end.held and f"\n{end.held}" or "")


def describe_late(ends: list[Ending], seconds: float) -> str:
    """One message for a run whose time is up: who still ran, and who had left the others alone."""
    running = ", ".join(f"{end.rank} on {end.host}" for end in ends if not end.record and not end.vanished)
    said = f"not done after {seconds:.0f} s: "
    said += f"rank {running} still ran" if running else "the launcher did not end"
    early = _left_early(ends)
    if running and early:
        said += f", but {early} had left with status {exit_status(early)}"
    return f"{said}. Stopped; see where they stood, or give more time (--timeout)"


STARTERS = (
    "/distlab/agent/",
    "runpy",
    "/contextlib.py",
    "/multiprocessing/",
    'File "<string>"',
    "Extension modules:",
)
THREAD = re.compile(r"(?:Current thread|Thread) 0x[0-9a-f]+ (\[.*\] )?")


def trim_stack(text: str) -> str:
    """A rank's stack, most recent call first, without the frames of whatever started it."""
    lines = [line for line in text.splitlines() if not any(starter in line for starter in STARTERS)]
    return THREAD.sub("", "\n".join(lines)).strip()
