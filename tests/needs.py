"""Programs that a test cannot do without."""

import shutil
from importlib.util import find_spec

import pytest

SSHD = "/usr/sbin/sshd"


def programs(*names: str) -> None:
    """Skip, with the reason, where one is missing; a skipped test fails in CI."""
    for name in names:
        if not shutil.which(name):
            pytest.skip(f"{name} is not installed here")


def horovod() -> None:
    """Skip where Horovod is not installed: it is built, which takes minutes."""
    if find_spec("horovod") is None:
        pytest.skip("Horovod is not built here: make horovod")
