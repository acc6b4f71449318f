"""Live ranks: a cell that begins with %%px runs in all of them, in milliseconds.

    from distlab import ranks

    ranks.start()           # an ipyparallel engine in each rank, on the hosts found here
    ranks.values("x")       # the variable x of every rank, in rank order
    ranks.stop()

    %%px
    x = torch.full((2,), float(me.rank))
    dist.all_reduce(x)
    x

In each rank there are `me` (`process.Rank`), `torch` and `dist`. They are one job of `launch`, so
they end together, name the one that failed first, and are gone when the notebook is.
"""

from typing import TYPE_CHECKING, Any

from distlab.hosts import HostList

if TYPE_CHECKING:
    from distlab.ranks.live import LiveRanks

_live: "LiveRanks | None" = None


def start(hosts: str | HostList | None = None) -> "LiveRanks":
    """Live ranks on the hosts, and the magic %%px to run cells in them.

    Ranks that are up already on the same hosts are kept, with their variables. When one of them
    has died, says which, and starts all anew.

    Args:
        hosts: `"node1:2,node2:2"`, or None for the hosts found here.

    Raises:
        RanksError: they did not come up; says which rank is missing and why.
        HostsError, HostError, OSError: nothing was started; says why.
    """
    global _live
    # Imported here since ipyparallel takes a third of a second, and few lessons use live ranks.
    from distlab.ranks.cell import register
    from distlab.ranks.live import LiveRanks

    if _live is not None:
        if _live.alive and _live.serves(hosts):
            return _live
        if not _live.alive:
            print(f"{_live.death} Starting all ranks anew, without their variables.")
        stop()
    _live = LiveRanks(hosts)
    register(current)
    return _live


def current() -> "LiveRanks":
    """The live ranks of this process.

    Raises:
        RanksError: there are none.
    """
    if _live is None:
        from distlab.ranks.live import RanksError

        raise RanksError("no live ranks: ranks.start() starts them")
    return _live


def values(expression: str) -> list[Any]:
    """The value of an expression, such as a variable's name, on each rank in rank order.

    Returns:
        Numbers, text, lists and dicts of them; tensors as nested lists.

    Raises:
        RanksError: a rank cannot evaluate it; names the rank.
    """
    return current().values(expression)


def pids() -> list[int]:
    """Process ids of the agents that hold the live ranks; none when there are no live ranks."""
    return _live.pids if _live else []


def stop() -> None:
    """End the live ranks, if there are any."""
    global _live
    if _live is not None:
        _live.close()
        _live = None
