"""Which hosts and slots there are. Nothing here starts anything, and nothing imports torch."""

import sys
from types import ModuleType

from distlab.hosts.host import Host, HostsError
from distlab.hosts.hostlist import HostList, find
from distlab.hosts.text import parse

__all__ = ["Host", "HostList", "HostsError", "find", "parse"]


class _CallableModule(ModuleType):
    # Notebooks write `from distlab import hosts; hosts()`, and a function of that name would hide this module.
    def __call__(self) -> HostList:
        return find()


sys.modules[__name__].__class__ = _CallableModule
