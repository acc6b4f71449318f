"""Where ranks can run from here."""

import os
from dataclasses import dataclass
from pathlib import Path

from distlab.hosts.host import Host, machine_cores
from distlab.hosts.nodes import in_node
from distlab.hosts.simulated import DEFAULT_SLOTS, simulate
from distlab.hosts.text import parse, read_hostfile, read_slurm, to_hosts

FEWEST_RANKS = 2


@dataclass(frozen=True)
class HostList:
    """Hosts, and where they were named."""

    hosts: list[Host]
    source: str

    @property
    def slots(self) -> int:
        """Ranks that fit on all hosts together."""
        return sum(host.slots for host in self.hosts)

    @property
    def own_devices(self) -> tuple[int, str]:
        """How many ranks can have a device of their own, and which: a "GPU", else a "core".

        Remote machines tell only their slots, so there the device is called a "slot".
        """
        gpus = {gpu for host in self.hosts for gpu in host.gpus or ()}
        if gpus and os.environ.get("DISTLAB_DEVICE") != "cpu":
            return len(gpus), "GPU"
        return (machine_cores(), "core") if any(host.cores for host in self.hosts) else (self.slots, "slot")

    def one_device_each(self) -> str:
        """These hosts as a string, each with as many ranks as have a core or a GPU of their own; two ranks at least.

        The same number on each, so that they are stages of equal speed. Never more than a host's slots.
        Prints it when ranks have to share, since their times are then no longer their own.
        """
        count, what = self.own_devices
        each = min(max(1, count // len(self.hosts)), *(host.slots for host in self.hosts))
        if each * len(self.hosts) < FEWEST_RANKS:
            each = FEWEST_RANKS
        ranks = each * len(self.hosts)
        if ranks > count:
            print(f"{ranks} ranks share {count} {what}{'s' if count > 1 else ''}: times are not their own")
        return ",".join(f"{host.name}:{each}" for host in self.hosts)

    def __str__(self) -> str:
        lines = [f"{len(self.hosts)} hosts, {self.slots} slots ({self.source})"]
        for host in self.hosts:
            gpus = "all its GPUs" if host.gpus is None else f"GPU {','.join(host.gpus)}" if host.gpus else "no GPU"
            cores = "all its cores" if host.cores is None else f"{host.cores} core{'s' if host.cores > 1 else ''}"
            lines.append(f"  {host.name}: {host.slots} slots, {host.kind}, {gpus}, {cores}")
        return "\n".join(lines)

    __repr__ = __str__

    def _repr_html_(self) -> str:
        from distlab.drawing.slots import picture

        return picture(self)


def find() -> HostList:
    """The hosts of DISTLAB_HOSTS, a hostfile, a Slurm allocation, the containers, or else two simulated ones.

    Raises:
        HostsError: what names the hosts is malformed.
    """
    environ = dict(os.environ)
    if environ.get("DISTLAB_HOSTS"):
        return HostList(parse(environ["DISTLAB_HOSTS"]), "DISTLAB_HOSTS")
    if environ.get("DISTLAB_HOSTFILE"):
        path = Path(environ["DISTLAB_HOSTFILE"])
        return HostList(to_hosts(read_hostfile(path)), f"hostfile {path}")
    if environ.get("SLURM_JOB_NODELIST"):
        return HostList(to_hosts(read_slurm(environ), "ssh"), f"Slurm job {environ.get('SLURM_JOB_ID', '?')}")
    if in_node() and environ.get("DISTLAB_TRANSPORT") != "simulated":
        return HostList(to_hosts(DEFAULT_SLOTS), "containers on one network")
    return HostList(simulate(), "simulated on this machine")
