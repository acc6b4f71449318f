"""Which network interface leads to the other hosts.

gloo and NCCL would use the address of the host's own name. On many systems that is 127.0.1.1, which
no other host can reach.
"""

import ipaddress
import socket
from collections.abc import Iterable, Mapping
from contextlib import suppress

import psutil

# Any port will do: connecting a UDP socket sends nothing, it only asks the kernel for a route.
ANY_PORT = 9


def source_address(peer: str) -> str | None:
    """This host's own IPv4 address on the way to a peer, or None without a route or a name."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe, suppress(OSError, UnicodeError):
        probe.connect((peer, ANY_PORT))
        return str(probe.getsockname()[0])
    return None


def interface_of(address: str) -> str | None:
    """The interface that has an address; any of 127.0.0.0/8 belongs to loopback."""
    everything = psutil.net_if_addrs().items()
    for name, addresses in everything:
        if any(own.family == socket.AF_INET and own.address == address for own in addresses):
            return name
    return interface_of("127.0.0.1") if address.startswith("127.") and address != "127.0.0.1" else None


def network_of(name: str) -> str | None:
    """The IPv4 network of an interface, such as 172.18.0.0/16; None when it has no address."""
    for own in psutil.net_if_addrs().get(name, []):
        if own.family == socket.AF_INET and own.netmask:
            return str(ipaddress.ip_network(f"{own.address}/{own.netmask}", strict=False))
    return None


def leading_to(peers: Iterable[str]) -> str | None:
    """The interface that leads to the other hosts, or to this host itself when there are none.

    None when no peer can be resolved or routed to; joining then says who is missing.
    """
    for peer in list(peers) or ["127.0.0.1"]:
        address = source_address(peer)
        name = interface_of(address) if address else None
        if name:
            return name
    return None


def socket_variables(peers: Iterable[str], environ: Mapping[str, str]) -> dict[str, str]:
    """Variables that make gloo and NCCL meet the peers, but for those that are set already."""
    name = leading_to(peers)
    if not name:
        return {}
    return {variable: name for variable in ("GLOO_SOCKET_IFNAME", "NCCL_SOCKET_IFNAME") if not environ.get(variable)}
