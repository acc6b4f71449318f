"""Images and text for the lessons: prepared once on each host, read by all its ranks.

    images = data.load("fashion-mnist", me=me)          # Images: train, val, classes, shape, note
    sampler = DistributedSampler(images.train, ...)
    for x, y in data.loader(images.train, 64, sampler=sampler): ...     # x (64, C, H, W), y (64,)
    mine = data.shard(images.val, me.rank, me.world_size)               # exact, nothing twice

Names are found on first use, so that `python -m distlab.data` prepares a set without torch:

    load(name="fashion-mnist", *, root=None, limit=None, me=None, on_damaged="stop", size=96) -> Images
    loader(dataset, batch_size, *, sampler=None, shuffle=False, seed=0, drop_last=False, workers=0) -> DataLoader
    shard(dataset, rank, world_size) -> Dataset
    require_samples(n_samples, world_size) -> None
    text(limit_bytes=4_000_000, split="train") -> Tensor
    sequences(limit_bytes, context, multiple=1) -> Text
    prepare(name="fashion-mnist", *, root=None, ...) -> Prepared
"""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from distlab.data.batches import collate, loader, require_samples, shard
    from distlab.data.images import Images, load
    from distlab.data.language import Text, sequences
    from distlab.data.sets import NAMES, prepare
    from distlab.data.stdlib import text
    from distlab.data.store import Prepared

__all__ = [
    "NAMES",
    "Images",
    "Prepared",
    "Text",
    "collate",
    "load",
    "loader",
    "prepare",
    "require_samples",
    "sequences",
    "shard",
    "text",
]

_HOME = {
    "NAMES": "sets",
    "Images": "images",
    "Prepared": "store",
    "Text": "language",
    "collate": "batches",
    "load": "images",
    "loader": "batches",
    "prepare": "sets",
    "require_samples": "batches",
    "sequences": "language",
    "shard": "batches",
    "text": "stdlib",
}


def __getattr__(name: str) -> object:
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_HOME[name]}"), name)
