"""The keys and the token that both nodes share: made at start-up, never part of an image."""

import errno
import os
import secrets
import subprocess
from contextlib import ExitStack, suppress
from pathlib import Path

from distlab.errors import DistlabError
from distlab.hosts.simulated import DEFAULT_SLOTS
from distlab.whole import whole_folder

PORT = 2222
KEYGEN_SECONDS = 20


class SharedError(DistlabError, OSError):
    """The folder that both nodes share cannot be used; says why and what to do."""


def _make(folder: Path) -> None:
    for name in ("user_key", "host_key"):
        subprocess.run(
            ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", f"workshop {name}", "-f", str(folder / name)],
            check=True,
            timeout=KEYGEN_SECONDS,
        )
    names = ",".join(f"[{name}]:{PORT}" for name, _ in DEFAULT_SLOTS)
    (folder / "known_hosts").write_text(f"{names} {(folder / 'host_key.pub').read_text()}")
    (folder / "authorized_keys").write_text((folder / "user_key.pub").read_text())
    token = folder / "token"
    token.touch(mode=0o600)
    token.write_text(secrets.token_urlsafe(24))


def prepare(shared: Path) -> Path:
    """The folder of this user's keys, made by whichever node comes first.

    Each user has its own folder, so that a volume may see the workshop started as another one.

    Raises:
        SharedError: the shared folder cannot be written, or what it holds is another user's.
    """
    folder = shared / f"node-{os.getuid()}"
    # Whichever node comes second finds the first one's keys there.
    with suppress(FileExistsError), ExitStack() as stack:
        try:
            # It has mode 0700; ssh refuses keys in an open folder.
            work = stack.enter_context(whole_folder(folder))
        except OSError as error:
            text = f"cannot write {shared}, which both nodes share: {error.strerror}. {_remedy(shared)}"
            raise SharedError(error.errno, text) from None
        _make(work)
    if not os.access(folder / "user_key", os.R_OK):
        raise SharedError(errno.EACCES, f"{folder} is another user's. {_remedy(shared)}")
    return folder


def _remedy(shared: Path) -> str:
    return f"Mount a volume of the workshop's own at {shared}; `docker compose down -v` removes an old one"
