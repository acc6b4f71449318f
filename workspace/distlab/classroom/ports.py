"""Ports of this machine that somebody else holds."""

import errno
from collections.abc import Iterable, Mapping

from distlab.classroom.engine import Container
from distlab.classroom.seats import Seat, ports
from distlab.classroom.settings import ClassroomError
from distlab.ports import PortError, free_port


def is_free(bind: str, port: int) -> bool:
    """True when nobody listens on the port.

    Raises:
        ClassroomError: the address is none of this machine's.
    """
    try:
        free_port(bind, port, others=False)
    except (PortError, UnicodeError) as error:
        number = getattr(error, "errno", None)
        # A port below 1024 is closed to us but not to Docker, which runs as root.
        if number not in (errno.EADDRINUSE, errno.EACCES):
            raise ClassroomError(
                f"WORKSHOP_BIND={bind} is no address of this machine", "use 127.0.0.1, or 0.0.0.0 for all of them"
            ) from None
        return bool(number == errno.EACCES)
    return True


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
