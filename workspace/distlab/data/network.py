"""When the network may be used, and how long it may stay silent."""

import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager

CONNECT_SECONDS = 10


def offline() -> bool:
    """True when DISTLAB_OFFLINE=1 forbids the network."""
    return os.environ.get("DISTLAB_OFFLINE", "0") not in ("", "0")


@contextmanager
def short_timeouts() -> Iterator[None]:
    """Downloads give up after 10 s of silence: torchvision's have no timeout of their own."""
    before = socket.getdefaulttimeout()
    socket.setdefaulttimeout(CONNECT_SECONDS)
    try:
        yield
    finally:
        socket.setdefaulttimeout(before)
