"""What there is of Horovod in this environment, for doctor, lessons and whoever waits for it."""

import importlib.util
import json
import os
import sys
import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil

from distlab.horovod_wheel import kept

MAKE = "run make horovod"


@dataclass(frozen=True)
class State:
    """`name` is 'ready', 'building', 'failed', 'cut off' or 'absent'; `text` says it, `remedy` what to do."""

    name: str
    text: str
    remedy: str = ""


def proof_file() -> Path:
    """Where an environment keeps which wheel it has, once that is proved."""
    return Path(sys.prefix) / ".horovod.json"


def keep_proof(known: dict[str, Any]) -> None:
    """Keep that the Horovod of this environment was proved, and what it is."""
    proof_file().write_text(json.dumps(known) + "\n")


def _told() -> Path:
    return kept.root() / "state.json"


def tell(doing: str, percent: int, pid: int | None = None) -> None:
    """Say how far a build is. A doctor in another terminal reads it."""
    _write({"doing": doing, "percent": percent, "pid": pid or os.getpid(), "time": time.time()})


def fail(reason: str) -> None:
    """Say why there is no wheel."""
    _write({"failed": reason})


def forget() -> None:
    """No build is under way, and none has failed."""
    _told().unlink(missing_ok=True)


def _write(what: dict[str, Any]) -> None:
    with suppress(OSError):
        _told().parent.mkdir(parents=True, exist_ok=True)
        half = _told().with_suffix(f".{os.getpid()}")
        half.write_text(json.dumps(what))
        half.replace(_told())


def installed() -> dict[str, Any] | None:
    """What was proved of the Horovod in this environment, or None."""
    if importlib.util.find_spec("horovod") is None:
        return None
    with suppress(OSError, ValueError):
        known: dict[str, Any] = json.loads(proof_file().read_text())
        return known
    return None


def serves(nccl: bool) -> bool:
    """True when this environment has the proved Horovod of today's pins, with NCCL where that is asked for."""
    known = installed()
    return known is not None and known["key"] in ([kept.key(True)] if nccl else [kept.key(False), kept.key(True)])


def current() -> State:
    """Horovod here and now."""
    known = installed()
    if known and serves(nccl=False):
        parts = "gloo, MPI and NCCL" if known["nccl"] else "gloo and MPI"
        return State("ready", f"Horovod {known['version']} with {parts}")
    told: dict[str, Any] = {}
    with suppress(OSError, ValueError):
        told = json.loads(_told().read_text())
    if "failed" in told:
        return State("failed", told["failed"], f"mend it and {MAKE}; lesson 04 needs it, the others do not")
    if "doing" in told:
        share = f" ({told['percent']} %)" if told["percent"] else ""
        if _builds(told["pid"]):
            return State("building", f"not ready: {told['doing']}{share}", "it is ready in a few minutes; ask again")
        return State("cut off", f"not ready: the build ended while {told['doing']}{share}", MAKE)
    return State("absent", "not built yet", f"{MAKE}; lesson 04 needs it, the others do not")


def _builds(pid: int) -> bool:
    try:
        process = psutil.Process(pid)
        return "distlab.horovod_wheel" in process.cmdline() and process.status() != psutil.STATUS_ZOMBIE
    except psutil.Error:
        return False
