"""The examples in docstrings are true."""

import doctest
import importlib
from pathlib import Path

import distlab
import pytest

PACKAGE = Path(distlab.__file__).parent
MODULES = sorted(
    ".".join(path.relative_to(PACKAGE.parent).with_suffix("").parts)
    for path in PACKAGE.rglob("*.py")
    if ">>> " in path.read_text()
)


def test_there_are_examples():
    assert "distlab.hosts.text" in MODULES


@pytest.mark.parametrize("name", MODULES)
def test_examples(name):
    result = doctest.testmod(importlib.import_module(name))
    assert result.attempted > 0 and result.failed == 0
