"""scikit-learn's handwritten digits: 1,797 grey images of 8 x 8, inside its wheel.

E. Alpaydin, C. Kaynak: Optical Recognition of Handwritten Digits, UCI repository. CC BY 4.0.
"""

from pathlib import Path

import numpy as np

from distlab.data import arrays


def make(part: Path) -> dict:
    """Fill a folder: every fifth image is for validation."""
    from sklearn.datasets import load_digits

    found = load_digits()
    images = np.rint(found.images * (255 / 16)).astype(np.uint8)[:, None]
    val = np.arange(len(images)) % 5 == 4
    return arrays.write(
        part,
        (images[~val], found.target[~val]),
        (images[val], found.target[val]),
        [str(digit) for digit in range(10)],
        source="scikit-learn",
    )
