"""Which hosts and slots there are. Nothing here starts anything, and nothing imports torch."""

from distlab.hosts.find import Finding, find
from distlab.hosts.host import Host, HostsError
from distlab.hosts.parse import parse

__all__ = ["Finding", "Host", "HostsError", "find", "parse"]
