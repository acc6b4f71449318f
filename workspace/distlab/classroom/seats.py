"""A seat: one attendee's node1 and node2, with ports, a network and a folder of their own."""

import ipaddress
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from distlab.classroom.settings import ROOT, ClassroomError

MAIN = "distlab"
LAST = 99
STEP = 10
PORTS = ("NODE1_PORT", "NODE1_BOARD_PORT", "NODE2_PORT", "NODE2_BOARD_PORT")
HIGHEST_PORT = 65535
PROJECT = re.compile(rf"{MAIN}(?:-seat([1-9][0-9]?))?")


@dataclass(frozen=True, order=True)
class Seat:
    """Seat 1 to 99; 0 is the workshop that was started without a seat."""

    number: int = 0

    @property
    def project(self) -> str:
        """Its compose project."""
        return f"{MAIN}-seat{self.number}" if self.number else MAIN

    @property
    def words(self) -> str:
        """What follows `make up` to mean this seat."""
        return f" SEAT={self.number}" if self.number else ""

    @property
    def copy(self) -> Path:
        """Where its own copy of the workspace is, if it has one."""
        return ROOT / "seats" / str(self.number) / "workspace"


def parse(text: str) -> list[Seat]:
    """Seats of `3` or `1-20`; the one without a number for an empty text.

    Raises:
        ClassroomError: the text is neither, or a number is not between 1 and 99.
    """
    if not text.strip():
        return [Seat()]
    match = re.fullmatch(r"([0-9]{1,2})(?:-([0-9]{1,2}))?", text.strip())
    first, last = (int(match[1]), int(match[2] or match[1])) if match else (0, 0)
    if not 1 <= first <= last:
        raise ClassroomError(
            f"SEAT={text.strip()} is no seat", f"write a number from 1 to {LAST}, such as SEAT=3, or SEAT=1-20"
        )
    return [Seat(number) for number in range(first, last + 1)]


def room(text: str) -> list[Seat]:
    """The seats of a room of `20`; the one without a number for an empty text.

    Raises:
        ClassroomError: it is no number between 1 and 99.
    """
    if not text.strip():
        return [Seat()]
    if not re.fullmatch(r"0*[1-9][0-9]?", text.strip()):
        raise ClassroomError(f"SEATS={text.strip()} is no number of seats", f"write one from 1 to {LAST}: SEATS=20")
    return [Seat(number) for number in range(1, int(text) + 1)]


def of_project(name: str) -> Seat | None:
    """The seat of a compose project, or None when it is none of the workshop's."""
    match = PROJECT.fullmatch(name)
    return Seat(int(match[1] or 0)) if match else None


def ports(seat: Seat, settings: Mapping[str, str]) -> dict[str, int]:
    """The ports of a seat on this machine, by the name of the setting that each follows from.

    Raises:
        ClassroomError: a setting is no port, or so high that the seat's port would be none.
    """
    found = {}
    for name in PORTS:
        text = settings[name]
        number = int(text) if text.isdecimal() else 0
        highest = HIGHEST_PORT - STEP * seat.number
        if not 1 <= number <= highest:
            added = f", to which seat {seat.number} adds {STEP * seat.number}," if seat.number else ""
            raise ClassroomError(f"{name}={text}{added} is no port", f"choose one from 1024 to {highest}")
        found[name] = number + STEP * seat.number
    return found


def subnet(number: int, settings: Mapping[str, str]) -> str:
    """WORKSHOP_SUBNET for seat 0, and for seat N the Nth network of the same size behind it.

    >>> subnet(3, {"WORKSHOP_SUBNET": "10.123.0.0/24"})
    '10.123.3.0/24'

    Raises:
        ClassroomError: it is no network, or leads out of the private addresses.
    """
    text, example = settings["WORKSHOP_SUBNET"], "write one such as 10.123.0.0/24"
    try:
        first = ipaddress.IPv4Network(text)
    except ValueError as error:
        raise ClassroomError(f"WORKSHOP_SUBNET={text} is no network ({error})", example) from None
    own = ipaddress.IPv4Network((int(first.network_address) + number * first.num_addresses, first.prefixlen))
    if not own.is_private:
        raise ClassroomError(f"WORKSHOP_SUBNET={text} leads to {own}, which is a public network", example)
    return str(own)
