"""How many bytes this process has sent over TCP, as its own sockets count them."""

import os
import socket
import struct
from contextlib import suppress

# Where linux/tcp.h has tcpi_bytes_sent and tcpi_bytes_retrans in struct tcp_info (Linux 4.19 and later).
BYTES_SENT, BYTES_RETRANS, LONG_ENOUGH = 200, 208, 216


def tcp_bytes_sent() -> int | None:
    """Bytes sent over all open TCP connections of this process, each byte once; None where the system does not count.

    What NCCL moves through shared memory, NVLink or InfiniBand is not in it.
    """
    total = None
    with suppress(OSError):
        for name in os.listdir("/proc/self/fd"):
            sent = _sent(int(name))
            if sent is not None:
                total = sent + (total or 0)
    return total


def _sent(number: int) -> int | None:
    with suppress(OSError):
        if not os.readlink(f"/proc/self/fd/{number}").startswith("socket:"):
            return None
        with socket.socket(fileno=os.dup(number)) as copy:
            if copy.family not in (socket.AF_INET, socket.AF_INET6) or copy.type != socket.SOCK_STREAM:
                return None
            info = copy.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 256)
        if len(info) >= LONG_ENOUGH:
            # tcpi_bytes_sent includes retransmissions.
            return struct.unpack_from("Q", info, BYTES_SENT)[0] - struct.unpack_from("Q", info, BYTES_RETRANS)[0]
    return None
