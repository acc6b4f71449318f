"""Who saves, and what is in the file."""

import functools
import os
from pathlib import Path
from typing import Any

import torch
from torch import nn

from distlab.checks.replica import apart


class Saves:
    """How often this rank saved to a file, however the attendee imports torch.save."""

    def __init__(self) -> None:
        self.count = 0

    def listen(self) -> None:
        """Notice each call of torch.save from now on."""
        save = torch.save

        @functools.wraps(save)
        def saves(obj: object, f: Any, *args: Any, **kwargs: Any) -> None:
            # A buffer in memory is no file.
            self.count += isinstance(f, (str, os.PathLike)) or hasattr(f, "name")
            save(obj, f, *args, **kwargs)

        torch.save = saves


def saved(path: Path, net: nn.Module) -> dict[str, Any]:
    """What is in the checkpoint: a `fault` in a word, or the largest difference to the net."""
    if not path.exists():
        return {"fault": "absent"}
    try:
        content = torch.load(path, weights_only=True)
    except Exception:
        return {"fault": "unreadable"}
    own = net.state_dict()
    # Some keep the state_dict in a dict with more beside it.
    inner = [content, *content.values()] if isinstance(content, dict) else []
    for state in (value for value in inner if isinstance(value, dict)):
        if state.keys() == own.keys():
            return {"apart": max(apart(state[name].cpu(), own[name]) for name in own)}
        if state.keys() == {f"module.{name}" for name in own}:
            return {"fault": "prefix"}
    return {"fault": "other"}
