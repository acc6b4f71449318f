"""From the name of a set to its prepared form. Nothing here imports torch unless a set needs it."""

import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

from distlab.data import folder
from distlab.data.store import DataError, Prepared, Unavailable, data_root, once, speak
from distlab.errors import SettingError

NAMES = ("fashion-mnist", "digits", "cifar10", "photos")
SIDE = 96


def prepare(
    name: str | os.PathLike = "fashion-mnist",
    *,
    root: str | os.PathLike | None = None,
    on_damaged: str = "stop",
    size: int = SIDE,
    leads: bool = True,
    retry: bool = False,
    say: Callable[[str], None] = speak,
) -> Prepared:
    """Find or make the prepared form of a set; one process per machine makes it, others wait.

    Args:
        name: one of NAMES, or the path of an image folder.
        root: where prepared data live, instead of DISTLAB_DATA or `~/.cache/distlab/data`.
        on_damaged: 'stop' or 'skip', for damaged files of an image folder.
        size: side in pixels to which the pictures of an image folder are resized.
        leads: this process goes first, as the first rank of a host does.
        retry: try the network again although it failed within the last 10 minutes.

    Raises:
        DataError: no such set, or the image folder has a fault; the message names it.
        DataFolderError: the data folder cannot be written, or is full.
        PrepareTimeout: another process was still preparing at the deadline.
        Unavailable: the set cannot be had here.
    """
    if on_damaged not in ("stop", "skip"):
        raise SettingError(f"on_damaged={on_damaged!r} is unknown: use 'stop' or 'skip'")
    home = data_root(root)
    how: dict[str, Any] = {"leads": leads, "retry": retry, "say": say}
    if name == "fashion-mnist":
        return _fashion_or_digits(home, **how)
    if name == "digits":
        from distlab.data import digits

        return once(home / "digits", digits.make, **how)
    if name == "cifar10":
        from distlab.data import cifar10

        return once(home / "cifar10", lambda part: cifar10.make(part, home, say), **how)
    top, label = Path(name).expanduser().absolute(), ""
    if name == "photos":
        from distlab.data import photos

        made = once(home / "photos", photos.make, **how)
        top, label = made.folder, "photos"
    elif not top.is_dir():
        raise DataError(f"no data set {str(name)!r}: it is neither {', '.join(NAMES)} nor a folder of images")
    found = folder.prepare(top, home, name=label, size=size, on_damaged=on_damaged, leads=leads, say=say)
    if name == "photos":
        return replace(found, note="; ".join(filter(None, (made.note, found.note))))
    return found


def _fashion_or_digits(home: Path, **how: Any) -> Prepared:
    from distlab.data import fashion

    try:
        return once(home / "fashion-mnist", lambda part: fashion.make(part, home, how["say"]), **how)
    except Unavailable as error:
        return fall_back(home, str(error), **how)


def fall_back(home: Path, reason: str, **how: Any) -> Prepared:
    """scikit-learn's digits in place of Fashion-MNIST, with a note that says why and what to do."""
    from distlab.data import digits

    found = once(home / "digits", digits.make, **how)
    note = (
        f"Fashion-MNIST is not here, so these are scikit-learn's 1,797 digits of 8x8 ({reason}). "
        "To get it, run `python -m distlab.data` with a network, or `sudo apt-get install dataset-fashion-mnist`"
    )
    return replace(found, note=note)
