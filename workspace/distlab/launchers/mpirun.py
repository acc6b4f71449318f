"""Open MPI's mpirun, which starts the ranks of all hosts from the first."""

import os
import sys

from distlab.hosts.interface import leading_to, network_of
from distlab.launchers.launcher import LOOPBACK, Launcher, Start

SETTINGS = {
    # Ranks that wait take a whole core, unless they are told to let others have it.
    "mpi_yield_when_idle": "1",
    # A container may not read another process's memory, and Open MPI complains of that at length.
    "btl_vader_single_copy_mechanism": "none",
}
INTERFACE = "OMPI_MCA_btl_tcp_if_include"
VARIABLES = {
    "rank": "OMPI_COMM_WORLD_RANK",
    "world_size": "OMPI_COMM_WORLD_SIZE",
    "local_rank": "OMPI_COMM_WORLD_LOCAL_RANK",
    "local_world_size": "OMPI_COMM_WORLD_LOCAL_SIZE",
    # Open MPI does not say it; our agents do.
    "host_index": "DISTLAB_HOST_INDEX",
}


def _mca(**settings: str) -> list[str]:
    return [word for name, value in settings.items() for word in ("--mca", name, value)]


def settings(start: Start) -> list[str]:
    """Open MPI's settings for these hosts, as words of a command."""
    # Over ssh Open MPI is on nobody's path.
    prefix = ["--prefix", sys.prefix] if start.bin and start.peers else []
    # Without other hosts Open MPI needs no ssh, and must be told so where there is none.
    return [*prefix, *_mca(**SETTINGS, **({} if start.peers else {"plm": "isolated"}))]


def command(start: Start) -> list[str]:
    """The words that start the ranks of all hosts."""
    interface = LOOPBACK if start.peers is None else leading_to(start.peers)
    # By its addresses: on another host the same network may have another name.
    network = LOOPBACK if start.peers is None else interface and network_of(interface)
    meet = _mca(btl_tcp_if_include=network, oob_tcp_if_include=network) if network else []
    root = ["--allow-run-as-root"] if os.geteuid() == 0 else []
    placed = ["-n", str(start.ranks), "-H", start.hosts(), *root, "-bind-to", "none", "-map-by", "slot"]
    exported = [word for name in start.exported for word in ("-x", name)]
    return [f"{start.bin}mpirun", *placed, *settings(start), *meet, *exported, *start.program]


MPIRUN = Launcher("mpirun", VARIABLES, command, interface=INTERFACE)
