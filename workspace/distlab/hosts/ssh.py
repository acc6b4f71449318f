"""The `ssh` on PATH that launchers call to start their ranks on other hosts."""

import shlex
import shutil
from pathlib import Path


def put_ssh(folder: Path, words: str) -> Path:
    """Write a program `ssh` that is what DISTLAB_SSH says, such as `ssh -p 2222`.

    Args:
        folder: exists; the program goes to a folder of its own in it.

    Returns:
        The program's folder, to come first on PATH.
    """
    program, *options = shlex.split(words)
    own = folder / "bin" / "ssh"
    own.parent.mkdir()
    # By its full path, since the `ssh` first on PATH is this very file.
    own.write_text(f'#!/bin/sh\nexec {shlex.join([shutil.which(program) or program, *options])} "$@"\n')
    own.chmod(0o700)
    return own.parent
