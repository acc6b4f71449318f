"""Programs that a test cannot do without."""

import shutil

import pytest

SSHD = "/usr/sbin/sshd"


def programs(*names: str) -> None:
    """Skip, with the reason, where one is missing; a skipped test fails in CI."""
    for name in names:
        if not shutil.which(name):
            pytest.skip(f"{name} is not installed here")
