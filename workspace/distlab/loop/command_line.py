"""The command line that all training scripts share."""

import argparse
import math
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

from distlab import models
from distlab.process import read_placement

if TYPE_CHECKING:
    from _typeshed import SupportsWrite


class _Help(argparse.RawDescriptionHelpFormatter, argparse.ArgumentDefaultsHelpFormatter):
    """Keeps the description's lines and shows defaults."""

    def _get_help_string(self, action: argparse.Action) -> str | None:
        return action.help if action.default is None else super()._get_help_string(action)


class _Parser(argparse.ArgumentParser):
    """Prints errors and help on rank 0 only, and exits on every rank."""

    def error(self, message: str) -> NoReturn:
        if read_placement().rank:
            self.exit(2)
        super().error(message)

    def print_help(self, file: "SupportsWrite[str] | None" = None) -> None:
        if not read_placement().rank:
            super().print_help(file)


def whole(least: int) -> Callable[[str], int]:
    """A parser of whole numbers that are `least` or more."""

    def parse(text: str) -> int:
        try:
            value = int(text)
        except ValueError:
            value = least - 1
        if value < least:
            raise argparse.ArgumentTypeError(f"{text!r} is not a whole number of {least} or more")
        return value

    return parse


def real(above: float | None = None) -> Callable[[str], float]:
    """A parser of finite numbers above a bound, or of 0 or more."""

    def parse(text: str) -> float:
        try:
            value = float(text)
        except ValueError:
            value = math.nan
        fits = value >= 0 if above is None else value > above
        if not (math.isfinite(value) and fits):
            wanted = "of 0 or more" if above is None else f"above {above:g}"
            raise argparse.ArgumentTypeError(f"{text!r} is not a number {wanted}")
        return value

    return parse


def options(description: str | None = None) -> argparse.ArgumentParser:
    """A parser with the options that `load` and `fit` understand. Add a script's own to it."""
    parser = _training(description, lr=0.02)
    add = parser.add_argument
    parser.set_defaults(samples="images")
    add("--model", choices=models.names(), default=models.DEFAULT, help="network to train")
    add("--data", default="fashion-mnist", help="name of a data set, or the path of an image folder")
    add("--data-root", type=Path, metavar="DIR", help="where prepared data live")
    add("--limit", type=whole(1), metavar="N", help="use at most this many training samples")
    add("--on-damaged", choices=("stop", "skip"), default="stop", help="what to do about a damaged image file")
    return parser


def text_options(description: str | None = None) -> argparse.ArgumentParser:
    """A parser with the options that `load_text` and `fit` understand."""
    parser = _training(description, lr=0.005)
    add = parser.add_argument
    # The length of Adam's steps does not depend on the batch size, so the learning rate is not scaled with it.
    parser.set_defaults(samples="sequences", model="language", lr_scaling=False, batch_size=32)
    add("--layers", type=whole(1), default=8, help="transformer blocks")
    add("--embedding-dim", type=whole(1), default=64, help="embedding dimension of a byte")
    add("--heads", type=whole(1), default=4, help="attention heads, which divide the embedding dimension")
    add("--context", type=whole(1), default=32, help="context length in bytes")
    add("--tied", action="store_true", help="tie the weights of embedding and head")
    add("--limit", type=whole(1), default=200_000, metavar="N", help="use at most this many bytes of text")
    add("--generate", type=whole(0), default=60, metavar="N", help="bytes to generate at the end")
    return parser


def _training(description: str | None, lr: float) -> argparse.ArgumentParser:
    parser = _Parser(description=description, formatter_class=_Help)
    add = parser.add_argument

    add("--epochs", type=whole(1), default=1, help="passes over the training data")
    add("--batch-size", type=whole(1), default=64, help="samples of one rank in one forward pass")
    add("--accumulate", type=whole(1), default=1, metavar="N", help="gradient accumulation: batches per update")
    add("--max-steps", type=whole(1), metavar="N", help="stop after this many updates, also within an epoch")
    add("--seed", type=whole(0), default=0, help="of weights and the order of samples")

    add("--lr", type=real(above=0), default=lr, help="learning rate for the batch of one rank")
    add(
        "--lr-scaling",
        action=argparse.BooleanOptionalAction,
        default=True,
        help="linear scaling: multiply --lr by the number of batches in an update",
    )
    add(
        "--warmup-epochs",
        type=real(),
        default=0.25,
        metavar="E",
        help="epochs of linear warm-up from --lr to the scaled rate",
    )

    add("--workers", type=whole(0), default=0, metavar="N", help="data loading processes of one rank")

    add("--checkpoint", type=Path, metavar="FILE", help="where to save; by default in the run's folder")
    add("--no-checkpoint", dest="checkpoint", action="store_false", default=None, help="save nothing")
    add("--checkpoint-every", type=whole(1), metavar="N", help="save after every N updates, beside each epoch's end")
    add(
        "--resume",
        nargs="?",
        type=Path,
        const=True,
        metavar="FILE",
        help="resume from FILE, else from --checkpoint, else from the newest checkpoint of all runs",
    )
    return parser
