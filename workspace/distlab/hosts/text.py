"""Hosts as text: `node1:2,node2:2`, an MPI hostfile, a Slurm node list."""

import os
import re
import shutil
import socket
import subprocess
from collections.abc import Iterable
from pathlib import Path

from distlab.hosts.host import Host, HostsError
from distlab.hosts.nodes import divide_cores, in_node
from distlab.hosts.simulated import simulate

EXAMPLE = "write NAME:SLOTS,NAME:SLOTS, for example node1:2,node2:2"
SIMULATED_NAME = re.compile(r"node[0-9]+")
HOST_NAME = re.compile(r"[A-Za-z0-9]([A-Za-z0-9._-]*[A-Za-z0-9])?")
MOST_SLOTS = 128


def _slots(text: str, where: str) -> int:
    # isdigit() would take ² for a digit, and int() would not.
    if not text.isdecimal() or not 1 <= int(text) <= MOST_SLOTS:
        raise HostsError(f"{where}: {text!r} is not a number of slots between 1 and {MOST_SLOTS}; {EXAMPLE}")
    return int(text)


def read_string(text: str) -> list[tuple[str, int]]:
    """Names and slots of `node1:2,node2:2`; a name alone has one slot.

    Raises:
        HostsError: names the part that is malformed or given twice.
    """
    entries: list[tuple[str, int]] = []
    for part in text.split(","):
        name, colon, count = part.strip().partition(":")
        if not HOST_NAME.fullmatch(name):
            raise HostsError(f"hosts {text!r}: {part.strip()!r} has no host name; {EXAMPLE}")
        if name in dict(entries):
            raise HostsError(f"hosts {text!r}: {name} is given twice; add up its slots")
        entries.append((name, _slots(count, f"hosts {text!r}") if colon else 1))
    return entries


def read_hostfile(path: Path) -> list[tuple[str, int]]:
    """Names and slots of an Open MPI hostfile: `node1 slots=2`, one host a line, # comments.

    Raises:
        HostsError: the file is missing, empty, or a line (named) is malformed.
    """
    try:
        lines = path.read_text().splitlines()
    except OSError as error:
        raise HostsError(f"hostfile {path}: {error.strerror}") from None
    except UnicodeDecodeError:
        raise HostsError(f"hostfile {path}: is not text") from None
    entries: dict[str, int] = {}
    for number, line in enumerate(lines, 1):
        words = line.partition("#")[0].split()
        if not words:
            continue
        where = f"hostfile {path}, line {number}"
        if not HOST_NAME.fullmatch(words[0]):
            raise HostsError(f"{where}: {words[0]!r} is not a host name")
        counts = [word.partition("=")[2] for word in words[1:] if word.startswith("slots=")]
        entries[words[0]] = entries.get(words[0], 0) + (_slots(counts[0], where) if counts else 1)
    if not entries:
        raise HostsError(f"hostfile {path} names no host: write one a line, for example node1 slots=2")
    return list(entries.items())


def expand_nodelist(text: str) -> list[str]:
    """Names in a Slurm node list, whose brackets hold commas of their own.

    >>> expand_nodelist("n[01-03]x,gpu[1,4],a")
    ['n01x', 'n02x', 'n03x', 'gpu1', 'gpu4', 'a']

    Raises:
        HostsError: brackets do not match or a range runs backwards.
    """
    parts = re.findall(r"(?:[^,\[\]]|\[[^\[\]]*\])+", text)
    if not text or ",".join(parts) != text:
        raise HostsError(f"node list {text!r}: brackets or commas do not match")
    names: list[str] = []
    for part in parts:
        heads = [""]
        for literal, bracket in re.findall(r"([^\[\]]+)|\[([^\[\]]*)\]", part):
            options = [literal] if literal else _bracket(bracket, text)
            heads = [head + option for head in heads for option in options]
        names += heads
    return names


def _bracket(inside: str, text: str) -> list[str]:
    options = []
    for piece in inside.split(","):
        match = re.fullmatch(r"([0-9]+)(?:-([0-9]+))?", piece)
        if not match or (match[2] and int(match[2]) < int(match[1])):
            raise HostsError(f"node list {text!r}: {piece!r} is not a number or a range")
        last = int(match[2] or match[1])
        options += [str(number).zfill(len(match[1])) for number in range(int(match[1]), last + 1)]
    return options


def read_slurm(environ: dict[str, str]) -> list[tuple[str, int]]:
    """Names and slots of the Slurm allocation that this process runs in."""
    nodelist = environ["SLURM_JOB_NODELIST"]
    names: list[str] = []
    if shutil.which("scontrol"):
        answer = subprocess.run(
            ["scontrol", "show", "hostnames", nodelist], capture_output=True, text=True, timeout=10, check=False
        )
        names = answer.stdout.split() if answer.returncode == 0 else []
    names = names or expand_nodelist(nodelist)
    # SLURM_TASKS_PER_NODE reads 2(x3),1: a count, repeated.
    counts: list[int] = []
    for piece in environ.get("SLURM_TASKS_PER_NODE", "1").split(","):
        match = re.fullmatch(r"([0-9]+)(?:\(x([0-9]+)\))?", piece)
        if not match:
            raise HostsError(f"SLURM_TASKS_PER_NODE={environ['SLURM_TASKS_PER_NODE']!r}: {piece!r} is no count")
        counts += [int(match[1])] * int(match[2] or 1)
    counts += [counts[-1]] * (len(names) - len(counts))
    return list(zip(names, counts, strict=False))


def is_this_machine(name: str) -> bool:
    """True for the names by which this machine knows itself."""
    own = socket.gethostname()
    return name in {"localhost", own, own.partition(".")[0]}


def to_hosts(entries: Iterable[tuple[str, int]], transport: str | None = None) -> list[Host]:
    """Hosts from names and slots.

    node1, node2 ... are simulated unless `transport` is 'ssh': a name that some network happens
    to resolve must never send an attendee's work to a stranger. By default it is what
    DISTLAB_TRANSPORT says, or ssh inside the workshop's containers.

    Raises:
        HostsError: simulated and other hosts are mixed, a name does not resolve, or it is
            localhost beside others.
    """
    entries = list(entries)
    transport = transport or os.environ.get("DISTLAB_TRANSPORT") or ("ssh" if in_node() else "")
    if transport not in {"", "ssh", "simulated"}:
        raise HostsError(f"DISTLAB_TRANSPORT={transport!r} is unknown: use ssh or simulated")
    simulated = [transport != "ssh" and bool(SIMULATED_NAME.fullmatch(name)) for name, _ in entries]
    if all(simulated) or transport == "simulated":
        return simulate(entries)
    if any(simulated):
        names = ", ".join(name for (name, _), is_simulated in zip(entries, simulated, strict=True) if is_simulated)
        raise HostsError(f"{names} would be simulated beside real hosts: set DISTLAB_TRANSPORT=ssh to reach it")
    found = []
    for name, slots in entries:
        try:
            address = socket.gethostbyname(name)
        except (OSError, UnicodeError):
            up = "is its container up? `docker compose ps`" if in_node() else "check the name"
            raise HostsError(f"host {name} does not resolve: {up}, or that both hosts are on one network") from None
        found.append(Host(name, slots, "here" if is_this_machine(name) else "ssh", address))
    if len(found) > 1 and any(host.name == "localhost" for host in found):
        raise HostsError(
            "localhost beside other hosts: to each of them it is another machine; "
            f"use the name that they know, such as {socket.gethostname()}"
        )
    return divide_cores(found) if in_node() else found


def parse(text: str) -> list[Host]:
    """Hosts of a string such as `node1:2,node2:2`.

    Raises:
        HostsError: says which part is wrong.
    """
    return to_hosts(read_string(text))
