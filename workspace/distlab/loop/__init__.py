"""The training loop that all lessons' scripts share.

    args = loop.options(__doc__).parse_args(argv)
    images = loop.load(args, me)
    ...
    loop.fit(me, model, optimizer, train, val, args)

It does not know which lesson it is in. A script that trains differently passes another `step`,
and one whose ranks communicate without torch.distributed, or hold different parts of a model, other `collectives`.
"""

from distlab.loop.collectives import Collectives
from distlab.loop.command_line import options, real, text_options, whole
from distlab.loop.inputs import load, load_text
from distlab.loop.mixed import MixedStep
from distlab.loop.rate import WarmUp, scaled_lr
from distlab.loop.samples import Shuffle, rest_of_epoch
from distlab.loop.step import LossError, NotFinite, require_finite, train_step
from distlab.loop.training import fit
from distlab.loop.validation import evaluate

__all__ = [
    "LossError",
    "MixedStep",
    "NotFinite",
    "Shuffle",
    "Collectives",
    "WarmUp",
    "evaluate",
    "fit",
    "load",
    "load_text",
    "options",
    "real",
    "require_finite",
    "rest_of_epoch",
    "scaled_lr",
    "text_options",
    "train_step",
    "whole",
]
