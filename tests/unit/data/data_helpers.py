"""What several tests of the data room share."""

import os

import numpy as np
from distlab.data import fashion
from PIL import Image

# Before any test moves them.
REAL_DATA = os.environ.get("DISTLAB_DATA")
PACKAGE_FOLDER = fashion.INSTALLED


def idx(array: np.ndarray) -> bytes:
    """The idx file of an array of bytes."""
    return bytes([0, 0, 8, array.ndim]) + np.array(array.shape, ">u4").tobytes() + array.astype(np.uint8).tobytes()


def leftovers(root):
    """Names in the data folder that a finished preparation should have removed."""
    return sorted(path.name for path in root.iterdir() if path.suffix in (".part", ".old"))


def picture(path, colour, size=(40, 30)):
    """Save an image of one colour."""
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.new("RGB", size, colour).save(path)


def truncate(path):
    """Cut off the second half of a file. Returns the bytes left."""
    left = path.stat().st_size // 2
    os.truncate(path, left)
    return left
