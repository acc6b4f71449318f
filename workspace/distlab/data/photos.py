"""An image folder of real photographs, cut from those that scikit-image and scikit-learn ship.

A class is one photograph: training crops come from its upper 70 %, validation crops from the rest.
A stand-in for ImageNet: its classes mean nothing, and the crops of one photograph are alike.
"""

import importlib.util
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from distlab.data.store import Unavailable

if TYPE_CHECKING:
    from PIL import Image

# Public domain or CC0 by scikit-image's docstrings; the last two CC BY 2.0.
PHOTOGRAPHS = {
    "skimage/data": [
        "astronaut.png",
        "brick.png",
        "chelsea.png",
        "coffee.png",
        "coins.png",
        "grass.png",
        "gravel.png",
        "hubble_deep_field.jpg",
        "ihc.png",
        "retina.jpg",
        "rocket.jpg",
    ],
    "sklearn/datasets/images": ["china.jpg", "flower.jpg"],
}
ATTRIBUTION = """Crops of photographs that ship with scikit-image (public domain or CC0) and scikit-learn:
china.jpg by danielbuechele and flower.jpg by vultilion, both CC BY 2.0, cropped and resized.
"""
NOTE = "photos: each class is one photograph, so accuracy says little about recognising things"
SIDE = 96
CROPS = {"train": 200, "val": 50}
TRAIN_SHARE = 0.7
LARGEST_CROP = 160
SMALLEST_SHARE = 0.6


def make(part: Path) -> dict:
    """Fill a folder with train/CLASS/000.jpg ... and val/CLASS/000.jpg ..., the same on every machine."""
    from PIL import Image

    for home, names in PHOTOGRAPHS.items():
        for name in names:
            with Image.open(_below_package(home) / name) as opened:
                photo = opened.convert("RGB")
            _cut(photo, part, Path(name).stem, np.random.default_rng(list(name.encode())))
    (part / "ATTRIBUTION.txt").write_text(ATTRIBUTION)
    return {"kind": "image folder", "note": NOTE, "source": "scikit-image and scikit-learn"}


def _below_package(home: str) -> Path:
    package, below = home.split("/", 1)
    spec = importlib.util.find_spec(package)
    if spec is None or spec.origin is None:
        raise Unavailable(f"photos are cut from those of {package}, which is not installed here")
    return Path(spec.origin).parent / below


def _cut(photo: "Image.Image", part: Path, name: str, random: np.random.Generator) -> None:
    width, height = photo.size
    edge = int(height * TRAIN_SHARE)
    bands = {"train": (0, edge), "val": (edge, height)}
    # One range of scales for both splits, so that crops fit the smaller band, too.
    largest = min(LARGEST_CROP, height - edge, width)
    for split, (top, bottom) in bands.items():
        folder = part / split / name
        folder.mkdir(parents=True)
        for number in range(CROPS[split]):
            side = int(random.integers(int(largest * SMALLEST_SHARE), largest, endpoint=True))
            left = int(random.integers(0, width - side, endpoint=True))
            upper = int(random.integers(top, bottom - side, endpoint=True))
            crop = photo.crop((left, upper, left + side, upper + side))
            crop.resize((SIDE, SIDE)).save(folder / f"{number:03d}.jpg", quality=90)
