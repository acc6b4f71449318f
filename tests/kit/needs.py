"""Programs that a test cannot do without."""

import importlib.util
import shutil

import pytest

SSHD = "/usr/sbin/sshd"


def programs(*names: str) -> None:
    """Skip, with the reason, where one is missing; a skipped test fails in CI."""
    for name in names:
        if not shutil.which(name):
            pytest.skip(f"{name} is not installed here")


def horovod() -> None:
    """Skip, with the reason, where Horovod is not built."""
    if importlib.util.find_spec("horovod") is None:
        pytest.skip("Horovod is not built here: make horovod")
