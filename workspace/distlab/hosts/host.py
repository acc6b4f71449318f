"""One host: its name, its slots, how it is reached and what share of a machine is its own."""

import os
from dataclasses import dataclass

from distlab.errors import DistlabError


class HostsError(DistlabError, ValueError):
    """A hosts string, hostfile or node list that cannot be used; says which part and why."""


def machine_cores() -> int:
    """Cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


@dataclass(frozen=True)
class Host:
    """A place for ranks.

    Attributes:
        name: what its ranks call it.
        slots: how many ranks fit.
        kind: 'simulated' (a share of this machine), 'here' (this machine), or 'ssh'.
        address: where other hosts reach it.
        gpus: visible device list of a simulated host, or None: all that the host has.
        cores: whole cores of a simulated host, or None: all that the host has.
    """

    name: str
    slots: int
    kind: str
    address: str
    gpus: tuple[str, ...] | None = None
    cores: int | None = None

    def environment(self) -> dict[str, str]:
        """Variables that make this host differ from the machine it is on."""
        variables = {"DISTLAB_HOST": self.name}
        if self.gpus is not None:
            variables["CUDA_VISIBLE_DEVICES"] = ",".join(self.gpus)
        if self.kind == "simulated":
            # Every simulated host is on this machine, and only loopback never leaves it.
            loopback = "lo0" if os.uname().sysname == "Darwin" else "lo"
            variables |= {"GLOO_SOCKET_IFNAME": loopback, "NCCL_SOCKET_IFNAME": loopback}
        return variables

    def threads(self, ranks: int) -> int:
        """Threads per rank so that the ranks of this host fill its cores and do not fight."""
        return max(1, (self.cores or machine_cores()) // max(1, ranks))
