"""sshd as the normal user, on the nodes' own network, for whoever has the nodes' key."""

import getpass
import os
import shutil
import socket
import subprocess
from collections.abc import Mapping
from pathlib import Path

import psutil

from distlab.node.keys import PORT

# What a rank that is started over ssh has to know of its container. The token is none of it.
PASSED_ON = ("CUDA_", "DISTLAB_", "GLOO_", "LANG", "LC_", "LD_LIBRARY_PATH", "NCCL_", "NVIDIA_", "OMP_", "PATH", "TZ")


def own_address() -> str | None:
    """This container's address on the nodes' network, or None while it is on none.

    Asked of the interfaces: without a network, asking for the own name takes seconds to fail.
    """
    for _, addresses in sorted(psutil.net_if_addrs().items()):
        for one in addresses:
            if one.family == socket.AF_INET and not one.address.startswith("127."):
                return one.address
    return None


def configuration(keys: Path, address: str, environ: Mapping[str, str]) -> str:
    """The sshd_config of a node: this user and the nodes' key, nothing else."""
    passed = {name: value for name, value in environ.items() if name.startswith(PASSED_ON)}
    settings = {
        "ListenAddress": f"{address}:{PORT}",
        "HostKey": str(keys / "host_key"),
        "AuthorizedKeysFile": str(keys / "authorized_keys"),
        "AllowUsers": getpass.getuser(),
        "AuthenticationMethods": "publickey",
        "PasswordAuthentication": "no",
        "KbdInteractiveAuthentication": "no",
        "UsePAM": "no",
        # The keys lie in a folder of their own, but below one that every user may write.
        "StrictModes": "no",
        "AllowTcpForwarding": "no",
        "X11Forwarding": "no",
        "PermitTunnel": "no",
        "PermitUserRC": "no",
        "PrintMotd": "no",
        "PidFile": "none",
        "LogLevel": "ERROR",
        # A node whose network was cut says no farewell; its ranks must not wait for ever.
        "ClientAliveInterval": "3",
        "ClientAliveCountMax": "3",
        "SetEnv": " ".join(f'{name}="{value}"' for name, value in sorted(passed.items()) if '"' not in value),
    }
    return "".join(f"{name} {value}\n" for name, value in settings.items())


def start(keys: Path, address: str, folder: Path) -> subprocess.Popen:
    """Start sshd on that address; its configuration goes to `folder`."""
    config = folder / "sshd_config"
    config.write_text(configuration(keys, address, os.environ))
    # sshd must be called by its whole path, by which it starts itself anew for each connection.
    program = shutil.which("sshd", path=f"{os.environ.get('PATH', '')}:/usr/sbin")
    return subprocess.Popen([program, "-D", "-e", "-f", str(config)], stdin=subprocess.DEVNULL)
