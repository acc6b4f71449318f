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

# What a rank started over ssh needs from its container's environment; not WORKSHOP_TOKEN, so that no rank has it.
PASSED_ON = ("CUDA_", "DISTLAB_", "GLOO_", "LANG", "LC_", "LD_LIBRARY_PATH", "NCCL_", "NVIDIA_", "OMP_", "PATH", "TZ")


def own_address() -> str | None:
    """This container's address on the nodes' network, or None while it is on none.

    Asked of the interfaces: without a network, asking for the own name takes seconds to fail.
    """
    for _, addresses in sorted(psutil.net_if_addrs().items()):
        for address in addresses:
            if address.family == socket.AF_INET and not address.address.startswith("127."):
                return address.address
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
        # Would refuse the keys, because a folder above theirs may be written by every user.
        "StrictModes": "no",
        "AllowTcpForwarding": "no",
        "X11Forwarding": "no",
        "PermitTunnel": "no",
        "PermitUserRC": "no",
        "PrintMotd": "no",
        "PidFile": "none",
        "LogLevel": "ERROR",
        # Ends the session when the other node's network is cut, so that ranks do not wait for ever.
        "ClientAliveInterval": "3",
        "ClientAliveCountMax": "3",
        "SetEnv": " ".join(f'{name}="{value}"' for name, value in sorted(passed.items()) if '"' not in value),
    }
    return "".join(f"{name} {value}\n" for name, value in settings.items())


def start(keys: Path, address: str, folder: Path) -> subprocess.Popen[bytes]:
    """Start sshd on that address; its configuration goes to `folder`."""
    config = folder / "sshd_config"
    config.write_text(configuration(keys, address, os.environ))
    # By its whole path, since sshd starts itself again for each connection and refuses a relative one.
    program = shutil.which("sshd", path=f"{os.environ.get('PATH', '')}:/usr/sbin") or "sshd"
    return subprocess.Popen([program, "-D", "-e", "-f", str(config)], stdin=subprocess.DEVNULL)
