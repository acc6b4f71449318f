"""What the package's own scripts report: the fields of each event's records.

Every record also has the fields of `Record`. `report.log` writes them as JSON lines, in which NaN and
infinity are null. Events of the lessons' experiments are documented by their own modules.
"""

from typing import TypedDict


class Record(TypedDict):
    """What every record has: `time` in seconds since 1970, and the rank that wrote it."""

    rank: int
    host: str
    time: float
    event: str


class Images(Record):
    """Event `data` of a script that trains on images: what was loaded. `train` and `val` count samples."""

    data: str
    train: int
    val: int
    classes: int
    channels: int
    # Of an image, in pixels.
    height: int
    width: int
    # Printed by rank 0, or empty.
    note: str


class Text(Record):
    """Event `data` of a script that trains on text: `train` and `val` count sequences of `context` bytes."""

    data: str
    train: int
    val: int
    context: int


class Setup(Record):
    """Event `setup`: how `loop.fit` trains, once at its start."""

    world_size: int
    device: str
    # gloo or nccl, or null without a group.
    backend: str | None
    threads: int
    model: str
    # Numbers in the parameters of this rank's model.
    parameters: int
    batch_size: int
    accumulate: int
    # Over all ranks.
    samples_per_update: int
    # Samples of an epoch on this rank, without padding.
    own_samples: int
    base_lr: float
    # After the warm-up.
    lr: float
    warmup_epochs: float


class Epoch(Record):
    """Event `epoch`: what came of one epoch. Losses and accuracies are means over all ranks' samples."""

    # From 1.
    epoch: int
    # Updates since training began.
    steps: int
    # Of the last update.
    lr: float
    loss: float
    # 0 to 1.
    accuracy: float
    val_loss: float | None
    val_accuracy: float | None
    # Over all ranks.
    val_images: int
    # Trained on by this rank, without padding.
    images: int
    # Of training, without validation.
    seconds: float
    # Of this rank, without the first update.
    images_per_second: float
    images_per_second_all: float


class End(Record):
    """Event `end`: the sums over the epochs of this run, once at the end of `loop.fit`."""

    # Whole epochs since training began, also those before a resume.
    epochs: int
    steps: int
    images: int
    seconds: float
    # Null when there was nothing left to train.
    images_per_second: float | None
    # Of the last validation.
    accuracy: float | None
    # Path on rank 0, or null with --no-checkpoint.
    checkpoint: str | None


class Scale(Record):
    """Event `scale`: the loss scale of fp16 has changed."""

    before: float
    after: float


class Env(Record):
    """Event `env` of scripts/env_report.py: one rank, under the names of torchrun's variables."""

    LOCAL_RANK: int
    GROUP_RANK: int
    LOCAL_WORLD_SIZE: int
    WORLD_SIZE: int
    device: str
    backend: str | None
    threads: int
    pid: int
    launcher: str


class Weights(Record):
    """Event `weights` of scripts/compare_weights.py: how far two checkpoints' weights are apart."""

    # The largest absolute difference.
    apart: float
    # The largest absolute weight.
    largest: float


# An event may have one of several forms.
EVENTS: dict[str, tuple[type, ...]] = {
    "data": (Images, Text),
    "setup": (Setup,),
    "epoch": (Epoch,),
    "end": (End,),
    "scale": (Scale,),
    "env": (Env,),
    "weights": (Weights,),
}
