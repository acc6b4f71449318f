"""Two hosts on one machine, each with its own share of GPUs or cores."""

import sys

from distlab.hosts.gpus import list_gpus
from distlab.hosts.host import Host, machine_cores

DEFAULT_SLOTS = (("node1", 2), ("node2", 2))


def share(items: list[str], parts: int) -> list[tuple[str, ...]]:
    """Split a list into consecutive, nearly equal shares; too few items and shares overlap.

    >>> share(["0", "1", "2", "3"], 2)
    [('0', '1'), ('2', '3')]
    >>> share(["0"], 2)
    [('0',), ('0',)]
    """
    if not items:
        return [()] * parts
    if len(items) < parts:
        return [(items[part % len(items)],) for part in range(parts)]
    edges = [round(part * len(items) / parts) for part in range(parts + 1)]
    return [tuple(items[edges[part] : edges[part + 1]]) for part in range(parts)]


def simulate(slots: list[tuple[str, int]] | None = None) -> list[Host]:
    """Simulated hosts that divide this machine's GPUs and cores among them."""
    slots = slots or list(DEFAULT_SLOTS)
    gpus = share([gpu.index for gpu in list_gpus()], len(slots))
    cores = max(1, machine_cores() // len(slots))
    # Linux answers on all of 127.0.0.0/8; elsewhere only 127.0.0.1 is configured.
    several = sys.platform == "linux"
    return [
        Host(
            name=name,
            slots=count,
            kind="simulated",
            address=f"127.0.0.{index + 1 if several else 1}",
            gpus=gpus[index],
            cores=cores,
        )
        for index, (name, count) in enumerate(slots)
    ]
