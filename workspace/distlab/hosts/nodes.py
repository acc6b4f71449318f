"""Inside the workshop's containers node1 and node2 are real hosts, and nobody has to name them."""

import os
import socket
from dataclasses import replace

from distlab.hosts.host import Host, machine_cores
from distlab.hosts.simulated import DEFAULT_SLOTS


def in_node() -> bool:
    """True in a container of the workshop's image whose own name is that of one of its nodes.

    The image sets DISTLAB_IMAGE, and compose (or `docker run --hostname`) gives the name. Both stay when
    the other node is down, so that it is reported missing and not simulated in its place.
    """
    return bool(os.environ.get("DISTLAB_IMAGE")) and socket.gethostname() in dict(DEFAULT_SLOTS)


def divide_cores(hosts: list[Host]) -> list[Host]:
    """The same hosts, each with its share of the cores: containers see all cores of one machine."""
    cores = max(1, machine_cores() // len(hosts))
    return [replace(host, cores=cores) for host in hosts]
