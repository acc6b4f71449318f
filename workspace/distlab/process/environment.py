"""Which rank this process is, read from the variables of whatever launched it."""

import os
import socket
from collections.abc import Mapping
from dataclasses import dataclass

from distlab.errors import SettingError
from distlab.launchers import LAUNCHERS


@dataclass(frozen=True)
class Placement:
    """Where a process stands among the others, before it has a device or a group."""

    rank: int
    world_size: int
    local_rank: int
    local_world_size: int
    host_index: int
    host: str
    launcher: str


def host_name(environ: Mapping[str, str] = os.environ) -> str:
    """The name of the host this rank runs on: node1 or node2 on simulated hosts."""
    return environ.get("DISTLAB_HOST") or socket.gethostname()


def read_seconds(name: str, default: float, environ: Mapping[str, str] = os.environ) -> float:
    """A duration from the environment.

    Raises:
        SettingError: it is no number, or not above 0.
    """
    text = environ.get(name) or str(default)
    try:
        seconds = float(text)
    except ValueError:
        seconds = 0.0
    # Not `<= 0`, since nan is neither.
    if not 0 < seconds < float("inf"):
        raise SettingError(f"{name}={text!r} is not a number of seconds above 0")
    return seconds


def read_placement(environ: Mapping[str, str] = os.environ) -> Placement:
    """Read rank, world size and local rank as the launchers export them.

    Without a launcher the process is rank 0 of a world of 1.

    Raises:
        SettingError: a variable is missing or no whole number, or a rank lies outside its world.
    """
    # Whoever sets them by hand may forget one of the two; each rank would then train alone.
    by_hand = "torchrun" if "RANK" in environ or "WORLD_SIZE" in environ else None
    launcher = by_hand or next((name for name, each in LAUNCHERS.items() if each.variables["rank"] in environ), None)
    if launcher is None:
        return Placement(0, 1, 0, 1, 0, host_name(environ), "none")
    names = LAUNCHERS[launcher].variables

    def number(field: str, default: int | None = None) -> int:
        name = names.get(field)
        text = environ.get(name) if name else None
        if text is None:
            if default is None:
                present = names["world_size" if field == "rank" else "rank"]
                raise SettingError(f"{present} is set but {name} is not: set both, or start with {launcher}")
            return default
        try:
            return int(text)
        except ValueError:
            raise SettingError(f"{name}={text!r} is not a whole number") from None

    rank, world_size = number("rank"), number("world_size")
    if not 0 <= rank < world_size:
        raise SettingError(
            f"{names['rank']}={rank} lies outside {names['world_size']}={world_size}: "
            f"ranks count from 0 to {world_size - 1}"
        )
    # A rank set by hand comes without LOCAL_*: then it is the only one on its host.
    local_rank = number("local_rank", 0)
    local_world_size = number("local_world_size", max(1, local_rank + 1))
    if not 0 <= local_rank < local_world_size:
        raise SettingError(f"{names['local_rank']}={local_rank} lies outside a host of {local_world_size} ranks")
    host_index = number("host_index", rank // local_world_size)
    return Placement(rank, world_size, local_rank, local_world_size, host_index, host_name(environ), launcher)
