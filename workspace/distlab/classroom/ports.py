"""Ports of this machine that somebody else holds."""

import errno
import socket
from collections.abc import Iterable, Mapping

from distlab.classroom.engine import Container
from distlab.classroom.seats import Seat, ports
from distlab.classroom.settings import ClassroomError


def is_free(bind: str, port: int) -> bool:
    """True when nobody listens on the port.

    Raises:
        ClassroomError: the address is none of this machine's.
    """
    with socket.socket() as probe:
        # As Docker's own listener does: a connection that has just been closed is no obstacle.
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((bind, port))
        except (OSError, UnicodeError) as error:
            if getattr(error, "errno", None) == errno.EADDRINUSE:
                return False
            # A low port is root's to open, and Docker opens it as root.
            if getattr(error, "errno", None) != errno.EACCES:
                raise ClassroomError(
                    f"WORKSHOP_BIND={bind} is no address of this machine", "use 127.0.0.1, or 0.0.0.0 for all of them"
                ) from None
    return True


def find_free(count: int) -> list[int]:
    """Ports of the loopback address that nobody listens on now."""
    probes = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    found = [probe.getsockname()[1] for probe in probes]
    for probe in probes:
        probe.close()
    return found


def clashes(
    seats: Iterable[Seat], settings: Mapping[str, str], running: Iterable[Container]
) -> Iterable[ClassroomError]:
    """What stands in the way of each seat's ports; what a seat's own containers hold does not.

    Raises:
        ClassroomError: a setting is no port or no address.
    """
    holders = {here: container.project for container in running for here in container.ports.values()}
    wanted: dict[int, str] = {}
    for seat in seats:
        for name, port in ports(seat, settings).items():
            whose = f"{name} of seat {seat.number}" if seat.number else name
            example = f"make up{seat.words} {name}={int(settings[name]) + 1}"
            if port in wanted:
                yield ClassroomError(f"port {port} is both {wanted[port]} and {whose}", f"choose another: {example}")
            elif holders.get(port) != seat.project and not is_free(settings["WORKSHOP_BIND"], port):
                holder = holders.get(port) or "another program"
                yield ClassroomError(
                    f"port {port} ({whose}) is taken by {holder}",
                    f"take {'another' if seat.number else 'a'} SEAT, or another port: {example}",
                )
            wanted[port] = whose
