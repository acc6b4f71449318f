"""Image folders: one folder per class, at the top or below `train/` and `val/`.

A folder is examined once per machine. A set that fits into CACHE_BYTES is decoded once and stored as arrays;
of a larger one the list of its whole files is stored, so that all ranks read the same.
"""

import hashlib
import os
import shutil
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import numpy as np

from distlab.data import arrays, decoding
from distlab.data.store import DataError, Prepared, once

CACHE_BYTES = 512 * 2**20
HOLD_OUT = 5
BLOCK = 1000
SECONDS_BETWEEN_NOTICES = 10.0
# Means and deviations of ImageNet's channels, for sets too large to measure.
IMAGENET_MEAN, IMAGENET_STD = [0.485, 0.456, 0.406], [0.229, 0.224, 0.225]


class File(NamedTuple):
    """An image file of a split: path below the top folder, label, bytes, modification time in ns."""

    split: str
    path: str
    label: int
    size: int
    changed: int


def prepare(
    top: Path, root: Path, *, size: int, on_damaged: str, leads: bool, say: Callable[[str], None], name: str = ""
) -> Prepared:
    """Examine an image folder once, and decode it if it fits.

    Args:
        size: side of the square images in pixels.
        on_damaged: 'stop' raises at the first damaged file, 'skip' leaves all of them out.

    Raises:
        DataError: the folder is no image folder, a class is empty, splits differ, a file is damaged.
    """
    classes, files = scan(top)
    name = name or top.name or "folder"
    location = hashlib.sha256(f"{top}\n{size}".encode()).hexdigest()[:8]
    state = hashlib.sha256(repr(files).encode()).hexdigest()[:12]
    family = f"{name}-{size}px-{location}-"

    def make(part: Path) -> dict:
        facts = {**_make(part, top, classes, files, size, say), "name": name}
        for older in root.glob(f"{family}*"):
            shutil.rmtree(older, ignore_errors=True)
        return facts

    found = once(root / f"{family}{state}", make, leads=leads, say=say)
    damaged = [decoding.describe(top / path, label, reason) for path, label, reason in found.facts["damaged"]]
    if not damaged:
        return found
    more = f", and {len(damaged) - 1} more" if len(damaged) > 1 else ""
    if on_damaged == "stop":
        raise DataError(
            f"damaged image: {damaged[0]}{more}. Replace or delete it, or leave such files out with on_damaged skip"
        )
    if found.facts["emptied"]:
        raise DataError(f"no whole image is left of class {found.facts['emptied'][0]}: damaged: {damaged[0]}{more}")
    first = top / found.facts["damaged"][0][0]
    skipped = f"skipped {len(damaged)} damaged image{'s' if len(damaged) > 1 else ''}: {first}{more}"
    return replace(found, note="; ".join(filter(None, (found.note, skipped))))


def scan(top: Path) -> tuple[list[str], list[File]]:
    """Classes and image files of a folder, sorted. Hidden files and folders do not count.

    Raises:
        DataError: no class folders, an empty class folder, one split missing, splits that differ.
    """
    inside = _folders(top)
    splits = [name for name in ("train", "val") if name in inside and _folders(top / name)]
    if len(splits) == 1:
        other = "val" if splits == ["train"] else "train"
        raise DataError(
            f"{top} has {splits[0]}/ but no {other}/ with class folders: add it, or name one split's folder"
        )
    if not splits:
        classes = inside
        if not classes:
            raise DataError(f"{top} has no class folders: put the images of each class in a folder of its own there")
        files = sorted(file for label in range(len(classes)) for file in _hold_out(_walk(top, "", label, classes)))
        if not any(file.split == "val" for file in files):
            raise DataError(f"every class of {top} has one image: add more, some are needed for validation")
        return classes, files
    by_split = {split: _folders(top / split) for split in splits}
    classes = by_split["train"]
    if by_split["val"] != classes:
        missing = [
            f"{', '.join(sorted(extra))} only in {split}/"
            for split, extra in (
                ("train", set(classes) - set(by_split["val"])),
                ("val", set(by_split["val"]) - set(classes)),
            )
            if extra
        ]
        raise DataError(f"the classes of {top} differ: {'; '.join(missing)}. Both splits need the same class folders")
    return classes, sorted(
        file for split in splits for label in range(len(classes)) for file in _walk(top, split, label, classes)
    )


def _hold_out(files: list[File]) -> list[File]:
    chosen = range(HOLD_OUT - 1, len(files), HOLD_OUT) or range(max(1, len(files) - 1), len(files))
    return [file._replace(split="val" if index in chosen else "train") for index, file in enumerate(files)]


def _folders(top: Path) -> list[str]:
    return sorted(entry.name for entry in os.scandir(top) if not entry.name.startswith(".") and entry.is_dir())


def _walk(top: Path, split: str, label: int, classes: list[str]) -> list[File]:
    start = top / split / classes[label]
    found = []
    for folder, below, names in os.walk(start, followlinks=True):
        below[:] = [name for name in below if not name.startswith(".")]
        for name in names:
            if not name.startswith(".") and os.path.splitext(name)[1].lower() in decoding.ENDINGS:
                path = os.path.join(folder, name)
                status = os.stat(path)
                found.append(File(split, os.path.relpath(path, top), label, status.st_size, status.st_mtime_ns))
    if not found:
        raise DataError(f"class folder {start} holds no JPEG or PNG image: add some or remove the folder")
    return sorted(found)


def _make(part: Path, top: Path, classes: list[str], files: list[File], size: int, say: Callable[[str], None]) -> dict:
    fits = len(files) * 3 * size * size <= CACHE_BYTES
    say(f"{'decoding' if fits else 'examining'} {len(files):,} images of {top}")
    pixels = np.empty((len(files) if fits else 0, 3, size, size), np.uint8)

    def look(index: int) -> str | None:
        path = top / files[index].path
        try:
            if fits:
                pixels[index] = decoding.decode(path, size)
            else:
                decoding.examine(path, size)
        except decoding.Damaged as error:
            return str(error)
        return None

    reasons: list[str | None] = []
    next_notice = time.monotonic() + SECONDS_BETWEEN_NOTICES
    with ThreadPoolExecutor(min(8, os.cpu_count() or 1)) as pool:
        for start in range(0, len(files), BLOCK):
            reasons += pool.map(look, range(start, min(start + BLOCK, len(files))))
            if time.monotonic() > next_notice:
                next_notice += SECONDS_BETWEEN_NOTICES
                say(f"{len(reasons):,} of {len(files):,} images of {top} are done")
    whole = np.array([reason is None for reason in reasons])
    splits = np.array([file.split for file in files])
    labels = np.array([file.label for file in files])
    facts = {
        "source": str(top),
        "damaged": [
            [file.path, classes[file.label], reason] for file, reason in zip(files, reasons, strict=True) if reason
        ],
        "emptied": [
            name
            for label, name in enumerate(classes)
            if any(not whole[(labels == label) & (splits == split)].any() for split in set(splits[labels == label]))
        ],
        "digest": hashlib.sha256(
            repr([(file.path, file.size) for file, good in zip(files, whole, strict=True) if good]).encode()
        ).hexdigest(),
    }
    if not (top / "val").is_dir():
        facts["note"] = f"every fifth image of each class of {top} is held out for validation"
    train, val = (np.flatnonzero(whole & (splits == split)) for split in ("train", "val"))
    if fits:
        return arrays.write(part, (pixels[train], labels[train]), (pixels[val], labels[val]), classes, **facts)
    names = np.array([os.fsencode(file.path) for file in files])
    for split, chosen in (("train", train), ("val", val)):
        np.save(part / f"{split}-paths.npy", names[chosen])
        np.save(part / f"{split}-labels.npy", labels[chosen])
    return {
        "kind": "files",
        "classes": classes,
        "shape": [3, size, size],
        "train": len(train),
        "val": len(val),
        "mean": IMAGENET_MEAN,
        "std": IMAGENET_STD,
        **facts,
    }
