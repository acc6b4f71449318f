"""CIFAR-10: 50,000 + 10,000 colour images of 32 x 32, through torchvision, which checks its checksums.

Alex Krizhevsky: Learning Multiple Layers of Features from Tiny Images, 2009.
"""

import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np

from distlab.data import arrays
from distlab.data.network import offline, short_timeouts
from distlab.data.store import Unavailable

ARCHIVE_FOLDER = "cifar-10-batches-py"


def make(part: Path, root: Path, say: Callable[[str], None]) -> dict:
    """Fill a folder from torchvision's files in the data folder, or else by its download.

    Raises:
        Unavailable: the files are not there or damaged, and cannot be fetched.
    """
    here = (root / ARCHIVE_FOLDER).is_dir()
    if not here and offline():
        raise Unavailable(
            f"CIFAR-10 is not in {root} and DISTLAB_OFFLINE forbids the network: copy {ARCHIVE_FOLDER} there"
        )
    from torchvision.datasets import CIFAR10

    if not here:
        say("fetching CIFAR-10 (170 MB) with torchvision")
    work = root if here else part / "work"
    try:
        with short_timeouts():
            train, val = (CIFAR10(str(work), train=split, download=not here) for split in (True, False))
    except (OSError, RuntimeError, EOFError) as error:
        reason = " ".join(str(error).split())
        what = f"the CIFAR-10 in {root / ARCHIVE_FOLDER} is damaged" if here else "CIFAR-10 cannot be fetched"
        raise Unavailable(f"{what} ({reason}): copy a whole {ARCHIVE_FOLDER} into {root}") from None
    finally:
        shutil.rmtree(part / "work", ignore_errors=True)
    splits = [(split.data.transpose(0, 3, 1, 2), np.asarray(split.targets)) for split in (train, val)]
    return arrays.write(part, splits[0], splits[1], list(train.classes), source="torchvision")
