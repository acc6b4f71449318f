"""An sshd of the tests' own: a normal process with keys, configuration and port of its own."""

import os
import shlex
import subprocess
from pathlib import Path

import leftovers
from distlab.waiting import wait_until
from needs import SSHD


def write_keys(folder: Path) -> None:
    """A key of the host and one of the user."""
    for name in ("host", "user"):
        command = ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", name, "-f", str(folder / name)]
        subprocess.run(command, check=True, timeout=20)
    (folder / "authorized_keys").write_text((folder / "user.pub").read_text())


def server_config(folder: Path, addresses: list[str], port: int) -> Path:
    """Configuration of an sshd that lets in who has the user's key."""
    lines = [
        *(f"ListenAddress {address}:{port}" for address in addresses),
        f"HostKey {folder / 'host'}",
        f"AuthorizedKeysFile {folder / 'authorized_keys'}",
        f"AcceptEnv {leftovers.MARK}",
        f"PidFile {folder / 'sshd.pid'}",
        "UsePAM no",
        "StrictModes no",
        "PermitRootLogin yes",
        "PasswordAuthentication no",
        "LogLevel VERBOSE",
    ]
    path = folder / "sshd_config"
    path.write_text("\n".join(lines) + "\n")
    return path


def client_words(folder: Path, port: int) -> str:
    """What DISTLAB_SSH has to be to reach that sshd."""
    lines = [
        f"Port {port}",
        f"IdentityFile {folder / 'user'}",
        "IdentitiesOnly yes",
        "StrictHostKeyChecking no",
        "UserKnownHostsFile /dev/null",
        "LogLevel ERROR",
        f"SendEnv {leftovers.MARK}",
    ]
    path = folder / "ssh_config"
    path.write_text("\n".join(lines) + "\n")
    return f"ssh -F {shlex.quote(str(path))}"


def start(folder: Path, addresses: list[str], port: int, inside: tuple[str, ...] = ()) -> subprocess.Popen:
    """Start sshd and wait until it listens; `inside` is a command that enters another namespace."""
    if os.geteuid() == 0:
        # sshd needs this folder when root starts it; otherwise Debian's service makes it.
        Path("/run/sshd").mkdir(mode=0o755, exist_ok=True)
    config = server_config(folder, addresses, port)
    log = (folder / "sshd.log").open("w+")
    process = subprocess.Popen([*inside, SSHD, "-D", "-e", "-f", str(config)], stderr=log, start_new_session=True)

    def listens() -> bool:
        said = (folder / "sshd.log").read_text()
        assert process.poll() is None, f"sshd did not start: {said}"
        return said.count("Server listening") >= len(addresses)

    assert wait_until(listens, 10, every=0.02), f"sshd did not start: {(folder / 'sshd.log').read_text()}"
    return process
