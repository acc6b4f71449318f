"""Where a run starts: at the beginning, or where a checkpoint was written."""

import argparse
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol, TypeAlias

import torch
from torch import nn
from torch.optim import Optimizer
from torch.utils.data import DataLoader, DistributedSampler

from distlab import checkpoint
from distlab.loop.collectives import Collectives
from distlab.loop.samples import total_samples
from distlab.process import Rank
from distlab.runs import run_folder, runs_root


class Kept(checkpoint.Stated, Protocol):
    """What a checkpoint can save beside model and optimizer: a loss scaler, a schedule."""

    def load_state_dict(self, state: dict[str, Any]) -> object:
        """Take up a state that `state_dict` gave."""
        ...


Keep: TypeAlias = Mapping[str, Kept]


@dataclass
class Position:
    """How far training is, the same on every rank.

    Attributes:
        epoch: whole epochs done.
        consumed: samples of the next one that all ranks together have trained on.
        steps: updates done.
        sums: [sum of losses, hits, samples] of the epoch begun, over all ranks.
    """

    epoch: int = 0
    consumed: int = 0
    steps: int = 0
    sums: list[float] = field(default_factory=lambda: [0.0, 0.0, 0.0])


def checkpoint_path(args: argparse.Namespace) -> Path | None:
    """Where this run saves: --checkpoint, else the run's folder, or None with --no-checkpoint."""
    if args.checkpoint is False:
        return None
    if args.checkpoint:
        return Path(args.checkpoint)
    folder = run_folder()
    return folder / checkpoint.FILE_NAME if folder else None


def _resume_path(args: argparse.Namespace) -> Path:
    if args.resume is not True:
        return Path(args.resume)
    return Path(args.checkpoint) if args.checkpoint else checkpoint.latest(runs_root())


def random_state(device: torch.device) -> dict:
    """The state of this rank's random numbers, as a checkpoint can hold it."""
    state = {"cpu": torch.get_rng_state()}
    if device.type == "cuda":
        state["cuda"] = torch.cuda.get_rng_state(device)
    return state


def _set_random_state(state: dict, device: torch.device) -> None:
    torch.set_rng_state(state["cpu"])
    if device.type == "cuda" and "cuda" in state:
        torch.cuda.set_rng_state(state["cuda"], device)


def save(
    path: Path,
    me: Rank,
    model: nn.Module,
    optimizer: Optimizer,
    train: DataLoader,
    at: Position,
    collectives: Collectives,
    keep: Keep,
) -> None:
    """Save from rank 0 all that a run on any number of ranks needs to go on. All ranks must call it.

    Raises:
        CheckpointNotWritten: on rank 0, when the file cannot be written.
    """
    random_states = collectives.all_gather(random_state(me.device))
    checkpoint.save(
        path,
        me,
        *collectives.full_state(model, optimizer),
        **vars(at),
        samples=total_samples(train),
        seed=getattr(train.sampler, "seed", None),
        world_size=me.world_size,
        batch_size=train.batch_size,
        random_states=random_states,
        kept={name: value.state_dict() for name, value in keep.items()},
    )


def start(
    args: argparse.Namespace,
    me: Rank,
    model: nn.Module,
    optimizer: Optimizer,
    train: DataLoader,
    collectives: Collectives,
    keep: Keep,
) -> Position:
    """The position to train from.

    With --resume, model, optimizer, what it keeps and random numbers are as they were there.
    Rank 0 reads the file and sends it, so that hosts need not share a file system.

    Raises:
        CheckpointError: on every rank, when the file is missing, damaged, or of another model or data set.
    """
    if args.resume is None:
        return Position()

    def read() -> tuple[str, dict]:
        path = _resume_path(args)
        return str(path), checkpoint.read(path)

    path, state = collectives.from_main(me.is_main, read)
    try:
        checkpoint.restore(collectives.own_state(state), model, optimizer)
        _require_same_epoch(state, train)
    except checkpoint.CheckpointError as error:
        raise checkpoint.CheckpointError(f"{path}: {error}") from None
    at = Position(state["epoch"], state["consumed"], state["steps"], state["sums"])
    if len(state["random_states"]) == me.world_size:
        _set_random_state(state["random_states"][me.rank], me.device)
    me.print(
        f"resumed {path}: {at.epoch} epoch{'s' if at.epoch != 1 else ''} and {at.consumed:,} samples, "
        f"written by {state['world_size']} rank{'s' if state['world_size'] != 1 else ''}"
    )
    for name, value in keep.items():
        _restore_kept(name, value, state, me)
    if isinstance(train.sampler, DistributedSampler) and state["seed"] not in (None, train.sampler.seed):
        me.print(f"the order of samples goes on with the checkpoint's seed {state['seed']}, not {train.sampler.seed}")
        train.sampler.seed = state["seed"]
    return at


def _restore_kept(name: str, value: Kept, state: dict, me: Rank) -> None:
    if not value.state_dict():
        # It is disabled in this run, as a loss scaler is for bf16.
        return
    # Empty when it was disabled in the run that wrote the file.
    saved = state.get("kept", {}).get(name)
    if saved:
        value.load_state_dict(saved)
    else:
        me.print(f"the checkpoint holds no state of the {name}: it starts anew")


def _require_same_epoch(state: dict, train: DataLoader) -> None:
    if not state["consumed"]:
        return
    if not isinstance(train.sampler, DistributedSampler):
        raise checkpoint.CheckpointError(
            "it was written within an epoch, which only DistributedSampler or loop.Shuffle can go on with"
        )
    if state["samples"] != total_samples(train):
        raise checkpoint.CheckpointError(
            f"it was written within an epoch of {state['samples']:,} samples, this run has {total_samples(train):,}: "
            "use the same --data and --limit"
        )
