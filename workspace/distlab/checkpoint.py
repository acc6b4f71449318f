"""Checkpoints: written whole by rank 0 or not at all, of tensors and plain types only.

A file holds the state of the network without DDP's or DataParallel's `module.` prefix, so it loads into
one process, into DDP on any number of ranks, or into a notebook.
"""

import errno
import io
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from distlab.errors import DistlabError
from distlab.models import unwrap
from distlab.whole import write_whole

if TYPE_CHECKING:
    from distlab.process import Rank

FILE_NAME = "checkpoint.pt"
FORMAT = 1
PREFIX = "module."


class Stated(Protocol):
    """A model, an optimizer, or anything else with a state to save."""

    def state_dict(self) -> dict[str, Any]:
        """The state, as tensors and plain values by name."""
        ...


class CheckpointError(DistlabError, ValueError):
    """A checkpoint cannot be read or does not fit; says which and why."""


class CheckpointNotWritten(DistlabError, OSError):
    """A checkpoint cannot be written; says where and why. The previous one is intact."""


def _require_plain(value: object, where: str) -> None:
    # Exact types, since a numpy scalar passes isinstance(float) but torch.load refuses it by default.
    if value is None or type(value) in (bool, int, float, str) or isinstance(value, Tensor):
        return
    if isinstance(value, dict):
        for key, item in value.items():
            _require_plain(key, f"the key {key!r} of {where}")
            _require_plain(item, f"{where}[{key!r}]")
    elif type(value) is list or type(value) is tuple:
        for index, item in enumerate(value):
            _require_plain(item, f"{where}[{index}]")
    else:
        raise TypeError(f"{where} is a {type(value).__name__}: a checkpoint holds tensors and plain types only")


def save(path: Path | str, me: "Rank", model: Stated, optimizer: Stated | None = None, **more: object) -> None:
    """Write a checkpoint from rank 0; on other ranks do nothing.

    A process killed at any moment leaves the previous file or the new one, never half of one.

    Args:
        more: whatever else to keep: numbers, text, tensors, lists and dicts of them.

    Raises:
        CheckpointNotWritten: the previous one is intact.
        TypeError: something is neither a tensor nor a plain type.
    """
    if not me.is_main:
        return
    path = Path(path)
    net = unwrap(model) if isinstance(model, nn.Module) else model
    state = {"format": FORMAT, "model": dict(net.state_dict()), **more}
    if optimizer is not None:
        state["optimizer"] = optimizer.state_dict()
    _require_plain(state, "state")
    content = io.BytesIO()
    torch.save(state, content)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        write_whole(path, content.getbuffer(), durable=True, alone=True)
    except OSError as error:
        why = "no space left" if error.errno in (errno.ENOSPC, errno.EDQUOT) else error.strerror
        kept = ", the previous one is intact" if path.is_file() else ""
        raise CheckpointNotWritten(
            error.errno,
            f"rank {me.rank} on {me.host} cannot write the checkpoint {path}: {why}{kept}. "
            "Free space, choose another place with --checkpoint FILE, or go without: --no-checkpoint",
        ) from None


def read(path: Path | str) -> dict[str, Any]:
    """The content of a checkpoint, tensors on the CPU. Safe on a file from anyone: it runs no code.

    Raises:
        CheckpointError: no such file, or it is damaged or no checkpoint; the message names it.
    """
    path = Path(path)
    if not path.is_file():
        raise CheckpointError(f"no checkpoint {path}: check the path, or start without --resume")
    try:
        state = torch.load(path, map_location="cpu", weights_only=True)
    except OSError as error:
        raise CheckpointError(f"cannot read the checkpoint {path}: {error.strerror or error}") from None
    except Exception as error:
        reason = str(error).strip().split("\n")[0][:120] or type(error).__name__
        raise CheckpointError(
            f"the checkpoint {path} ({path.stat().st_size:,} bytes) is damaged or is none: {reason}"
        ) from None
    if not isinstance(state, dict) or "model" not in state:
        raise CheckpointError(f"{path} is not a checkpoint of distlab: it holds no 'model'")
    if state.get("format") != FORMAT:
        raise CheckpointError(f"{path} has format {state.get('format')}, this version reads {FORMAT}: train anew")
    return state


def load_model(model: nn.Module, weights: dict[str, Any]) -> None:
    """Put saved weights into a model, wrapped or not, whether or not their keys begin with `module.`.

    Raises:
        CheckpointError: they do not fit; the message names the first key that is missing, too many
            or of another shape.
    """
    net = unwrap(model)
    if weights and all(key.startswith(PREFIX) for key in weights):
        weights = {key.removeprefix(PREFIX): value for key, value in weights.items()}
    require_fit(weights, net.state_dict())
    net.load_state_dict(weights)


def require_fit(weights: Mapping[str, Tensor], own: Mapping[str, Tensor]) -> None:
    """Refuse saved weights that have not the names and shapes of a model's own.

    Raises:
        CheckpointError: the message names the first key that is missing, too many or of another shape.
    """
    for key, value in own.items():
        if key not in weights:
            found = next(iter(weights), "nothing")
            raise CheckpointError(f"the checkpoint is of another model: it lacks {key!r} (its first key: {found!r})")
        if weights[key].shape != value.shape:
            raise CheckpointError(
                f"the checkpoint is of another model: {key!r} has shape {tuple(weights[key].shape)}, "
                f"this model wants {tuple(value.shape)}"
            )
    more = next((key for key in weights if key not in own), None)
    if more is not None:
        raise CheckpointError(f"the checkpoint is of another model: it has {more!r}, which this model lacks")


def restore(state: dict[str, Any], model: nn.Module, optimizer: Optimizer | None = None) -> None:
    """Put a read checkpoint into a model and its optimizer.

    Raises:
        CheckpointError: it does not fit one of them; the message says where.
    """
    load_model(model, state["model"])
    if optimizer is not None:
        if "optimizer" not in state:
            raise CheckpointError("the checkpoint holds no optimizer: load only its model")
        try:
            optimizer.load_state_dict(state["optimizer"])
        except (KeyError, ValueError) as error:
            raise CheckpointError(f"the checkpoint's optimizer does not fit this one: {error}") from None


def latest(root: Path | str) -> Path:
    """The newest checkpoint among the run folders below `root`.

    Raises:
        CheckpointError: there is none.
    """
    found = sorted(Path(root).glob(f"*/{FILE_NAME}"), key=lambda path: path.stat().st_mtime_ns)
    if not found:
        raise CheckpointError(f"nothing to resume: no {FILE_NAME} in the folders of {root}")
    return found[-1]
