"""From an image file to pixels, with errors that name the file."""

import os
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from distlab.errors import DistlabError

if TYPE_CHECKING:
    from PIL import Image

ENDINGS = {".jpg", ".jpeg", ".png"}
# Where a whole file of each format ends: JPEG's end-of-image, PNG's IEND chunk.
LAST_BYTES = {b"\xff\xd8": b"\xff\xd9", b"\x89P": b"IEND\xaeB`\x82"}


class Damaged(DistlabError, ValueError):
    """An image file that cannot be decoded. The message is the reason alone."""


def decode(path: str | os.PathLike, size: int) -> np.ndarray:
    """An image as RGB: its largest central square, resized. Shape (3, size, size), uint8.

    Raises:
        Damaged: the file is truncated, empty or no image.
        OSError: the file cannot be read: no permission, gone, failing disk.
    """
    from PIL import Image

    try:
        with Image.open(path) as image:
            # JPEG can decode at a fraction of its size, which is faster.
            image.draft("RGB", (2 * size, 2 * size))
            image.load()
            square = _central_square(_in_8_bits(image).convert("RGB"))
            return np.asarray(square.resize((size, size), Image.Resampling.BILINEAR)).transpose(2, 0, 1)
    except MemoryError:
        raise
    except Exception as error:
        # Pillow's own errors about a file's content have no errno, the system's have.
        if isinstance(error, OSError) and error.errno is not None:
            raise
        raise Damaged(_reason(error, path)) from None


def examine(path: str | os.PathLike, size: int) -> None:
    """Check a file quickly: its first and last bytes, and by decoding it only when they look wrong.

    Raises:
        Damaged, OSError: as `decode` does.
    """
    with open(path, "rb") as file:
        start = file.read(2)
        last = LAST_BYTES.get(start, b"")
        file.seek(-min(len(last), os.fstat(file.fileno()).st_size), os.SEEK_END)
        if last and file.read() == last:
            return
    decode(path, size)


def describe(path: str | os.PathLike, name: str, reason: str) -> str:
    """A damaged file in one phrase: path, class, size in bytes and reason."""
    return f"{path} (class {name}, {os.stat(path).st_size:,} bytes): {reason}"


def _in_8_bits(image: "Image.Image") -> "Image.Image":
    if not image.mode.startswith("I"):
        return image
    from PIL import Image

    # Pillow would clip 16-bit grey to white instead of scaling it.
    return Image.fromarray((np.asarray(image).astype(np.uint32) >> 8).clip(0, 255).astype(np.uint8))


def _central_square(image: "Image.Image") -> "Image.Image":
    width, height = image.size
    side = min(width, height)
    left, top = (width - side) // 2, (height - side) // 2
    return image.crop((left, top, left + side, top + side))


def _reason(error: Exception, path: str | os.PathLike) -> str:
    if Path(path).stat().st_size == 0:
        return "the file is empty"
    if type(error).__name__ == "UnidentifiedImageError":
        return "no image that Pillow knows"
    return (str(error).splitlines() or [type(error).__name__])[0]
