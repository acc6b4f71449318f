"""Image classifiers, by name."""

from collections.abc import Callable

import torch
from torch import nn

from distlab.errors import SettingError


def small_cnn(channels: int, classes: int, height: int, width: int) -> nn.Module:
    """Two convolutions and a small linear head: 10,000 parameters for Fashion-MNIST.

    Nearly all time is spent in convolutions and gradients are small, so more ranks are faster. No batch
    normalisation: its statistics would depend on how a batch is divided among ranks.
    """
    net = nn.Sequential(
        # Pooling first gives the same result, and ReLU has a quarter of the values to work on.
        nn.Conv2d(channels, 16, 3, padding=1),
        nn.MaxPool2d(2, ceil_mode=True),
        nn.ReLU(),
        nn.Conv2d(16, 32, 3, padding=1),
        nn.MaxPool2d(2, ceil_mode=True),
        nn.ReLU(),
        nn.AdaptiveAvgPool2d(4),
        nn.Flatten(),
        nn.Linear(32 * 4 * 4, classes),
    )
    for layer in net:
        if isinstance(layer, nn.Conv2d):
            # He et al. 2015, arXiv 1502.01852: without normalisation ReLU layers need this scale
            # to train well at the learning rates of large batches.
            nn.init.kaiming_normal_(layer.weight, nonlinearity="relu")
            nn.init.zeros_(layer.bias)
    return net


def mlp(channels: int, classes: int, height: int, width: int) -> nn.Module:
    """Three linear layers: large gradients for little computing, the opposite of small-cnn."""
    return nn.Sequential(
        nn.Flatten(),
        nn.Linear(channels * height * width, 256),
        nn.ReLU(),
        nn.Linear(256, 256),
        nn.ReLU(),
        nn.Linear(256, classes),
    )


def resnet18(channels: int, classes: int, height: int, width: int) -> nn.Module:
    """torchvision's ResNet-18, from random weights.

    Its first layers shrink an image to a quarter, too much for images below 64 pixels: those
    get a 3x3 convolution without stride and no pooling instead.
    """
    from torchvision.models import resnet18 as of_torchvision

    net = of_torchvision(weights=None, num_classes=classes)
    if min(height, width) < 64:
        net.conv1 = nn.Conv2d(channels, 64, 3, padding=1, bias=False)
        net.maxpool = nn.Identity()
    elif channels != 3:
        net.conv1 = nn.Conv2d(channels, 64, 7, stride=2, padding=3, bias=False)
    return net


BUILDERS: dict[str, Callable[[int, int, int, int], nn.Module]] = {
    "small-cnn": small_cnn,
    "mlp": mlp,
    "resnet18": resnet18,
}
DEFAULT = "small-cnn"


def names() -> list[str]:
    """The names that `build` knows."""
    return list(BUILDERS)


def build(name: str, channels: int, classes: int, height: int, width: int, seed: int = 0) -> nn.Module:
    """A network from images (N, channels, height, width) to logits (N, classes), on the CPU.

    The same seed gives the same weights in every process, and the caller's random number
    generators stay as they were.

    Raises:
        SettingError: no network has this name.
    """
    if name not in BUILDERS:
        raise SettingError(f"no model {name!r}: use one of {', '.join(BUILDERS)}")
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return BUILDERS[name](channels, classes, height, width)
