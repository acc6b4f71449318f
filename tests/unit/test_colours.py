"""Rank colours stay apart in grey and for colour-blind readers."""

import itertools

import numpy as np
import pytest
from distlab.drawing.colours import RANKS, TEXT_ON_RANKS, look

TO_XYZ = np.array([[0.4124, 0.3576, 0.1805], [0.2126, 0.7152, 0.0722], [0.0193, 0.1192, 0.9505]])
WHITE = np.array([0.9505, 1.0, 1.089])
# Linear RGB as seen without one kind of cone, at full severity: Machado, Oliveira and Fernandes 2009.
SIGHT = {
    "usual": np.eye(3),
    "deuteranopia": [
        [0.367322, 0.860646, -0.227968],
        [0.280085, 0.672501, 0.047413],
        [-0.011820, 0.042940, 0.968881],
    ],
    "protanopia": [
        [0.152286, 1.052583, -0.204868],
        [0.114503, 0.786281, 0.099216],
        [-0.003882, -0.048116, 1.051998],
    ],
    "tritanopia": [
        [1.255528, -0.076749, -0.178779],
        [-0.078411, 0.930809, 0.147602],
        [0.004733, 0.691367, 0.303900],
    ],
}


def linear(colour: str) -> np.ndarray:
    channels = np.array([int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)])
    return np.where(channels <= 0.04045, channels / 12.92, ((channels + 0.055) / 1.055) ** 2.4)


def lab(rgb: np.ndarray) -> np.ndarray:
    ratio = TO_XYZ @ np.clip(rgb, 0, 1) / WHITE
    f = np.where(ratio > 0.008856, np.cbrt(ratio), 7.787 * ratio + 16 / 116)
    return np.array([116 * f[1] - 16, 500 * (f[0] - f[1]), 200 * (f[1] - f[2])])


def test_lightness_differs_between_any_two_ranks():
    lightness = sorted(lab(linear(colour))[0] for colour in RANKS)
    assert min(np.diff(lightness)) > 13


@pytest.mark.parametrize("sight", SIGHT)
def test_colours_stay_apart(sight):
    seen = [lab(np.array(SIGHT[sight]) @ linear(colour)) for colour in RANKS]
    assert min(np.linalg.norm(one - other) for one, other in itertools.combinations(seen, 2)) > 25


def test_text_is_readable_on_its_rank():
    for colour, text in zip(RANKS, TEXT_ON_RANKS, strict=True):
        light, dark = sorted((TO_XYZ[1] @ linear(colour), TO_XYZ[1] @ linear(text)), reverse=True)
        assert (light + 0.05) / (dark + 0.05) >= 4.5


def test_eight_ranks_look_different_without_colour():
    looks = [look(rank) for rank in range(8)]
    assert len({(rank_look.colour, rank_look.hatch) for rank_look in looks}) == 8
    assert len({rank_look.marker for rank_look in looks}) == 8
