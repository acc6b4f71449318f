"""The hosts and their slots as a picture: where ranks can run from here."""

import base64
from collections.abc import Sequence
from html import escape
from typing import Protocol

from distlab.drawing.colours import INK, PALE, PAPER, SOFT, look

SLOT_WIDTH, SLOT_HEIGHT, GAP = 96, 64, 12
HEAD, FOOT, MARGIN = 52, 16, 10
SLOTS_IN_A_ROW, HOSTS_IN_A_ROW = 3, 2
KINDS = {
    "simulated": "simulated on this machine",
    "here": "this machine: you are here",
    "ssh": "another machine, reached by ssh",
}


class HostLike(Protocol):
    """What a host must tell to be drawn; `distlab.hosts.Host` does."""

    @property
    def name(self) -> str:
        """What its ranks call it."""
        ...

    @property
    def slots(self) -> int:
        """How many ranks fit."""
        ...

    @property
    def kind(self) -> str:
        """One of `KINDS`."""
        ...

    @property
    def gpus(self) -> tuple[str, ...] | None:
        """Its own GPUs; None: all that the machine has."""
        ...

    @property
    def cores(self) -> int | None:
        """Its own cores; None: all that the machine has."""
        ...


class HostListLike(Protocol):
    """Hosts and where they were named; `distlab.hosts.HostList` is one."""

    @property
    def hosts(self) -> Sequence[HostLike]:
        """In rank order."""
        ...

    @property
    def source(self) -> str:
        """Where they were named."""
        ...


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}{'' if number == 1 else 's'}"


def device_line(host: HostLike, local_rank: int) -> str:
    """What a slot computes on, in two or three words."""
    if host.gpus:
        return f"GPU {host.gpus[local_rank % len(host.gpus)]}"
    if host.gpus is None:
        return f"GPU {local_rank}, if any"
    return "CPU"


def shared_line(host: HostLike) -> str:
    """What the ranks of a host share, in plain words."""
    cores = "all cores" if host.cores is None else _count(host.cores, "core")
    if host.gpus is None:
        return "all GPUs and cores of that machine" if host.cores is None else f"its GPUs, if any, and {cores}"
    if not host.gpus:
        return f"{_count(host.slots, 'rank')} on {cores}, no GPU"
    crowded = "" if len(host.gpus) >= host.slots else ", shared"
    return f"{_count(len(host.gpus), 'GPU')}{crowded}, {cores}"


def describe(found: HostListLike) -> str:
    """The alternative text of the picture."""
    first, parts = 0, []
    for host in found.hosts:
        last = first + host.slots - 1
        ranks = f"rank {first}" if host.slots == 1 else f"ranks {first} to {last}"
        parts.append(f"{host.name} ({KINDS.get(host.kind, host.kind)}) takes {ranks}: {shared_line(host)}")
        first = last + 1
    return "; ".join(parts)


def _text(x: float, y: float, words: str, size: int, colour: str, **more: str) -> str:
    attributes = "".join(f' {name.replace("_", "-")}="{value}"' for name, value in more.items())
    return f'<text x="{x:g}" y="{y:g}" font-size="{size}" fill="{colour}"{attributes}>{escape(words)}</text>'


def _slot(x: float, y: float, rank: int, below: str) -> str:
    its = look(rank)
    middle = x + SLOT_WIDTH / 2
    return (
        f'<rect x="{x:g}" y="{y:g}" width="{SLOT_WIDTH}" height="{SLOT_HEIGHT}" rx="8" fill="{its.colour}"/>'
        + _text(middle, y + 29, f"rank {rank}", 17, its.text, text_anchor="middle", font_weight="600")
        + _text(middle, y + 49, below, 12, its.text, text_anchor="middle")
    )


def _host(x: float, y: float, width: float, height: float, host: HostLike, first: int) -> str:
    parts = [
        f'<rect x="{x:g}" y="{y:g}" width="{width:g}" height="{height:g}" rx="12" fill="{PAPER}" stroke="{SOFT}"/>',
        _text(x + 16, y + 25, host.name, 17, INK, font_weight="700"),
        _text(x + 16, y + 43, KINDS.get(host.kind, host.kind), 12, SOFT),
    ]
    for local_rank in range(host.slots):
        row, column = divmod(local_rank, SLOTS_IN_A_ROW)
        at = x + 16 + column * (SLOT_WIDTH + GAP), y + HEAD + row * (SLOT_HEIGHT + GAP)
        parts.append(_slot(*at, first + local_rank, device_line(host, local_rank)))
    parts.append(_text(x + 16, y + height - 12, shared_line(host), 12, SOFT))
    return "".join(parts)


def drawing(found: HostListLike) -> str:
    """The picture as SVG."""
    columns = min(SLOTS_IN_A_ROW, max(2, *(host.slots for host in found.hosts), 2))
    rows = max(-(-host.slots // SLOTS_IN_A_ROW) for host in found.hosts)
    width = 32 + columns * SLOT_WIDTH + (columns - 1) * GAP
    height = HEAD + rows * (SLOT_HEIGHT + GAP) + FOOT + 8
    across = min(HOSTS_IN_A_ROW, len(found.hosts))
    down = -(-len(found.hosts) // HOSTS_IN_A_ROW)
    parts, first = [], 0
    for index, host in enumerate(found.hosts):
        row, column = divmod(index, HOSTS_IN_A_ROW)
        at = MARGIN + column * (width + MARGIN), MARGIN + row * (height + MARGIN)
        parts.append(_host(*at, width, height, host, first))
        first += host.slots
    full = MARGIN + across * (width + MARGIN), MARGIN + down * (height + MARGIN)
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{full[0]:g}" height="{full[1]:g}" '
        f'viewBox="0 0 {full[0]:g} {full[1]:g}" font-family="system-ui, sans-serif">'
        f'<rect width="100%" height="100%" rx="12" fill="{PALE}"/>{"".join(parts)}</svg>'
    )


def picture(found: HostListLike) -> str:
    """Hosts, slots and devices as HTML.

    The drawing travels inside an <img>: JupyterLab shows that also in a notebook that it does
    not trust yet, where it drops plain SVG.
    """
    total = sum(host.slots for host in found.hosts)
    caption = f"{_count(len(found.hosts), 'host')}, {_count(total, 'slot')}: {found.source}"
    packed = base64.b64encode(drawing(found).encode()).decode()
    alt = escape(describe(found), quote=True)
    return (
        f'<figure style="margin: 0"><img style="max-width: 100%" alt="{alt}" src="data:image/svg+xml;base64,{packed}"/>'
        f"<figcaption>{escape(caption)}</figcaption></figure>"
    )
