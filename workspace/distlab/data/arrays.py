"""Sets that fit in memory: uint8 arrays of shape (N, C, H, W) and int64 labels, one file each.

Ranks map the files instead of reading them, so that all ranks of a host share one copy.
"""

import hashlib
from pathlib import Path

import numpy as np

Split = tuple[np.ndarray, np.ndarray]


def write(part: Path, train: Split, val: Split, classes: list[str], **facts: object) -> dict:
    """Write both splits into a folder and return the facts for its marker.

    Args:
        train, val: images (N, C, H, W) uint8, and labels (N,).
        facts: more to remember: source, note.
    """
    digest = hashlib.sha256()
    for split, (images, labels) in (("train", train), ("val", val)):
        images, labels = np.ascontiguousarray(images, np.uint8), np.ascontiguousarray(labels, np.int64)
        np.save(part / f"{split}-images.npy", images)
        np.save(part / f"{split}-labels.npy", labels)
        digest.update(images.data)
        digest.update(labels.data)
    mean, std = channel_moments(train[0])
    return {
        "kind": "arrays",
        "classes": classes,
        "shape": list(train[0].shape[1:]),
        "train": len(train[0]),
        "val": len(val[0]),
        "mean": mean,
        "std": std,
        "digest": digest.hexdigest(),
        **facts,
    }


def read(folder: Path, split: str) -> Split:
    """Map the images and labels of a split; pages are shared until somebody writes to them."""
    return (
        np.load(folder / f"{split}-images.npy", mmap_mode="c"),
        np.load(folder / f"{split}-labels.npy", mmap_mode="c"),
    )


def channel_moments(images: np.ndarray) -> tuple[list[float], list[float]]:
    """Mean and standard deviation of each channel, on the scale 0 to 1. Exact, from counts of the 256 levels."""
    levels = np.arange(256) / 255
    mean, std = [], []
    for channel in range(images.shape[1]):
        share = np.bincount(images[:, channel].reshape(-1), minlength=256) / images[:, channel].size
        mean.append(float(share @ levels))
        # 1 for a channel of one colour, since images are divided by it.
        std.append(float(np.sqrt(share @ (levels - mean[-1]) ** 2)) or 1.0)
    return mean, std
