"""Images as torch data sets: bytes in memory or on disk, normalised when a batch is made."""

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import Dataset

from distlab.data import arrays, decoding
from distlab.data.agreement import agree
from distlab.data.batches import Batch
from distlab.data.sets import SIDE, prepare
from distlab.data.store import HostDataError, Prepared
from distlab.errors import SettingError

if TYPE_CHECKING:
    from distlab.process import Rank


@dataclass(frozen=True)
class Images:
    """A set of images to train and validate on. `note` is a line to print, or empty."""

    name: str
    train: "ImageSet"
    val: "ImageSet"
    classes: list[str]
    channels: int
    height: int
    width: int
    note: str = ""


class ImageSet(Dataset):
    """Pairs of a normalised image (C, H, W) float32 and its label.

    Args:
        labels: (N,) int64.
        mean, std: of each channel, on the scale 0 to 1.
    """

    def __init__(self, labels: Tensor, mean: Sequence[float], std: Sequence[float]) -> None:
        self.labels = labels
        self.mean, self.std = list(mean), list(std)
        deviation = 255 * torch.tensor(self.std).view(-1, 1, 1)
        self._scale = 1 / deviation
        self._shift = -255 * torch.tensor(self.mean).view(-1, 1, 1) / deviation

    def __len__(self) -> int:
        return len(self.labels)

    def __getitem__(self, index: int) -> tuple[Tensor, int]:
        if not -len(self) <= index < len(self):
            raise IndexError(f"sample {index} of {len(self)}")
        chosen = torch.tensor([index % len(self)])
        return self._normalise(self.pixels(chosen))[0], int(self.labels[index])

    def __getitems__(self, indices: Sequence[int]) -> Batch:
        # index_select takes a tenth of the time that indexing by a list does.
        chosen = torch.as_tensor(indices)
        return Batch(self._normalise(self.pixels(chosen)), self.labels.index_select(0, chosen))

    def pixels(self, indices: Tensor) -> Tensor:
        """The images at these indices (N,), not normalised, (N, C, H, W) uint8."""
        raise NotImplementedError

    def subset(self, indices: Tensor) -> "ImageSet":
        """A set of its own with only these samples."""
        raise NotImplementedError

    def _normalise(self, pixels: Tensor) -> Tensor:
        return pixels.to(torch.float32).mul_(self._scale).add_(self._shift)


class InMemory(ImageSet):
    """Images (N, C, H, W) uint8 in memory, which ranks of one host share."""

    def __init__(self, images: Tensor, labels: Tensor, mean: Sequence[float], std: Sequence[float]) -> None:
        super().__init__(labels, mean, std)
        self.images = images

    def pixels(self, indices: Tensor) -> Tensor:
        """Images of these samples: (samples, channels, height, width), uint8."""
        return self.images.index_select(0, indices)

    def subset(self, indices: Tensor) -> "InMemory":
        """A set of its own with only these samples."""
        return InMemory(self.pixels(indices), self.labels[indices], self.mean, self.std)


class OnDisk(ImageSet):
    """Image files that are decoded when asked for. `paths` are bytes below `top`."""

    def __init__(
        self,
        top: Path,
        paths: np.ndarray,
        labels: Tensor,
        classes: list[str],
        size: int,
        mean: Sequence[float],
        std: Sequence[float],
    ) -> None:
        super().__init__(labels, mean, std)
        self.top, self.paths, self.classes, self.size = top, paths, classes, size

    def pixels(self, indices: Tensor) -> Tensor:
        """Images of these samples, decoded now: (samples, channels, height, width), uint8."""
        return torch.from_numpy(np.stack([self._decode(index) for index in indices.tolist()]))

    def subset(self, indices: Tensor) -> "OnDisk":
        """A set of its own with only these samples."""
        chosen = self.paths[indices.numpy()]
        return OnDisk(self.top, chosen, self.labels[indices], self.classes, self.size, self.mean, self.std)

    def _decode(self, index: int) -> np.ndarray:
        path = self.top / os.fsdecode(self.paths[index].item())
        try:
            return decoding.decode(path, self.size)
        except decoding.Damaged as error:
            name = self.classes[self.labels[index]]
            raise HostDataError(f"damaged image: {decoding.describe(path, name, str(error))}") from None


def load(
    name: str | os.PathLike = "fashion-mnist",
    *,
    root: str | os.PathLike | None = None,
    limit: int | None = None,
    me: "Rank | None" = None,
    on_damaged: str = "stop",
    size: int = SIDE,
) -> Images:
    """Images by the name of their set, prepared first if they are not yet.

    In a group all ranks must call it: they agree on the set, also when only some hosts have it.

    Args:
        name: 'fashion-mnist', 'digits', 'cifar10', 'photos', or the path of an image folder.
        root: where prepared data live, instead of DISTLAB_DATA or `~/.cache/distlab/data`.
        limit: at most this many training samples, taken evenly from the classes, and a fifth of it for validation.
        me: this rank; None prepares alone.
        on_damaged: 'stop' raises for a damaged file of an image folder, 'skip' leaves it out on all ranks.
        size: side in pixels to which the pictures of an image folder are resized.

    Raises:
        SettingError: limit is below 1.
        DataError, DataFolderError, PrepareTimeout, Unavailable: as `prepare` does.
        HostDataError: another rank failed so, or holds other data.
    """
    if limit is not None and limit < 1:
        raise SettingError(f"limit={limit} leaves nothing to train on: give 1 or more")
    how: dict[str, Any] = {"root": root, "leads": me is None or me.local_rank == 0}

    def get() -> Prepared:
        return prepare(name, on_damaged=on_damaged, size=size, **how)

    found = agree(me, get, **how) if me is not None and me.backend else get()
    facts = found.facts
    train, val = (_open(found, split) for split in ("train", "val"))
    if limit is not None:
        train, val = _evenly(train, limit), _evenly(val, max(1, limit // 5))
    channels, height, width = facts["shape"]
    return Images(facts["name"], train, val, facts["classes"], channels, height, width, found.note)


def _open(found: Prepared, split: str) -> ImageSet:
    facts = found.facts
    if facts["kind"] == "arrays":
        images, labels = map(torch.from_numpy, arrays.read(found.folder, split))
        return InMemory(images, labels, facts["mean"], facts["std"])
    paths = np.load(found.folder / f"{split}-paths.npy", mmap_mode="r")
    labels = torch.from_numpy(np.load(found.folder / f"{split}-labels.npy"))
    return OnDisk(
        Path(facts["source"]), paths, labels, facts["classes"], facts["shape"][1], facts["mean"], facts["std"]
    )


def _evenly(images: ImageSet, limit: int) -> ImageSet:
    """The first samples of each class in turn, in their old order.

    Class sizes differ by at most one as long as no class runs out.
    """
    if limit >= len(images):
        return images
    by_class = torch.argsort(images.labels, stable=True)
    counts = torch.bincount(images.labels)
    starts = torch.cumsum(counts, 0) - counts
    place = torch.empty_like(by_class)
    place[by_class] = torch.arange(len(by_class)) - torch.repeat_interleave(starts, counts)
    turn = torch.argsort(place * len(counts) + images.labels)
    return images.subset(turn[:limit].sort().values)
