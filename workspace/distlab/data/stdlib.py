"""Text that every machine has: the sources of the Python standard library, as bytes."""

import os
import sysconfig
from collections.abc import Iterator
from pathlib import Path

import torch
from torch import Tensor

from distlab.errors import DistlabError, SettingError

LEFT_OUT = {"test", "tests", "idle_test", "site-packages", "dist-packages", "__pycache__"}
HOLD_OUT = 10


class NoSources(DistlabError, FileNotFoundError):
    """This Python came without the sources of its library."""


def text(limit_bytes: int = 4_000_000, split: str = "train") -> Tensor:
    """At most `limit_bytes` of source text, (N,) uint8: a vocabulary of 256 without a tokenizer.

    Every tenth file is for split 'val'. The same on machines with the same Python, else alike.

    Raises:
        SettingError: unknown split, or a limit below 1.
        NoSources: this Python came without its sources.
    """
    if split not in ("train", "val"):
        raise SettingError(f"split={split!r} is unknown: use 'train' or 'val'")
    if limit_bytes < 1:
        raise SettingError(f"limit_bytes={limit_bytes} leaves no text: give 1 or more")
    content = bytearray()
    for number, path in enumerate(source_files()):
        if (number % HOLD_OUT == HOLD_OUT - 1) == (split == "val"):
            content += path.read_bytes()
            if len(content) >= limit_bytes:
                break
    if not content:
        raise NoSources(f"no Python sources in {sysconfig.get_path('stdlib')}: this Python came without them")
    return torch.frombuffer(content, dtype=torch.uint8)[:limit_bytes]


def source_files() -> Iterator[Path]:
    """The library's .py files in a fixed order, without its tests and without installed packages."""
    for folder, below, names in os.walk(sysconfig.get_path("stdlib")):
        below[:] = sorted(name for name in below if name not in LEFT_OUT and not name.startswith("."))
        yield from (Path(folder, name) for name in sorted(names) if name.endswith(".py"))
