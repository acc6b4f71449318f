"""Ports to listen on."""

import errno
import random
import socket
from contextlib import ExitStack
from pathlib import Path

from distlab.errors import DistlabError

# Where the kernel says which ports it gives to those who ask for any (ip(7)): its lowest and its highest.
GIVEN = Path("/proc/sys/net/ipv4/ip_local_port_range")
# Where we look for one instead, below them as a rule.
OWN_PORTS, TRIES = range(20000, 30000), 20
LOOPBACK = "127.0.0.1"


class PortError(DistlabError, OSError):
    """Nobody can listen there; says why."""


def own_ports() -> range:
    """Ports outside the kernel's ephemeral range, which no other program is given by chance.

    A port found free must stay free until rank 0 listens there; until then launchers open ports of any number.
    """
    try:
        given = int(GIVEN.read_text().split()[0])
    except (OSError, ValueError, IndexError):
        return range(0)
    return range(OWN_PORTS.start, min(OWN_PORTS.stop, given))


def _open(address: str, port: int) -> socket.socket:
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    try:
        return socket.create_server((address, port), family=family, backlog=128)
    except OverflowError:
        raise PortError(errno.EINVAL, f"{port} is no port: give one from 1 to 65535") from None
    except OSError as error:
        # Python adds where it was.
        raise PortError(error.errno, (error.strerror or str(error)).partition(" (while ")[0]) from None


def listen(address: str = LOOPBACK, wanted: int | None = None, others: bool = True) -> tuple[socket.socket, bool]:
    """A listening socket, at the wanted port if that is free, else at another.

    Args:
        wanted: None or 0 for any.
        others: whether another port than the wanted one will do.

    Returns:
        The socket, and whether the wanted port was taken.

    Raises:
        PortError: nobody can listen on that address, or not at the wanted port where no other will do.
    """
    if wanted and not others:
        return _open(address, wanted), False
    taken, own = False, own_ports()
    for port in [*([wanted] if wanted else []), *random.sample(own, min(TRIES, len(own)))]:
        try:
            return _open(address, port), taken
        except PortError as error:
            if error.errno == errno.EINVAL:
                raise
            taken = taken or port == wanted
    return _open(address, 0), taken


def free_port(address: str = LOOPBACK, wanted: int | None = None, others: bool = True) -> int:
    """A port on which nobody listens now; who opens it later must be ready to find it taken.

    Takes and raises what `listen` does.
    """
    with listen(address, wanted, others)[0] as server:
        return int(server.getsockname()[1])


def free_ports(count: int, address: str = LOOPBACK) -> list[int]:
    """As many different ports on which nobody listens now.

    Raises:
        PortError: nobody can listen on that address.
    """
    with ExitStack() as held:
        return [held.enter_context(listen(address)[0]).getsockname()[1] for _ in range(count)]
