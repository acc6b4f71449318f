"""Checkpoints of a model whose parts lie on different ranks: written as one, read by any number of stages."""

from typing import Any

import torch.distributed as dist
from torch import Tensor, nn
from torch.optim import Optimizer

from distlab import loop
from distlab.checkpoint import require_fit
from distlab.stages.gradients import EMBEDDING, HEAD
from distlab.stages.pipeline import Pipeline


class Whole:
    """A state with the method that a checkpoint calls."""

    def __init__(self, state: dict[str, Any]) -> None:
        self.state = state

    def state_dict(self) -> dict[str, Any]:
        """The state."""
        return self.state


class Collectives(loop.Collectives):
    """`loop.Collectives` for the ranks of a `Pipeline`.

    A file has the form that one process writes: the model's own names, the optimizer's state by the
    index of a parameter in the whole model. So it loads into one process, or into other stages.
    """

    def __init__(self, pipeline: Pipeline) -> None:
        self.pipeline = pipeline

    def full_state(self, model: nn.Module, optimizer: Optimizer) -> tuple[Whole, Whole]:
        """Both states on rank 0, put together from the stages of the first pipeline; elsewhere empty."""
        groups = optimizer.state_dict()
        own = dict(zip(self.pipeline.own_parameters(), _entries(optimizer), strict=True))
        parts = self._on_main((_on_cpu(model.state_dict()), _on_cpu(own)))
        weights = {name: value for part, _ in parts for name, value in part.items()}
        entries = {name: entry for _, part in parts for name, entry in part.items()}
        state = {place: entries[name] for place, name in enumerate(self.pipeline.names) if entries.get(name)}
        group = dict(groups["param_groups"][0]) | {"params": list(range(len(self.pipeline.names)))}
        return Whole(weights), Whole({"state": state, "param_groups": [group]})

    def own_state(self, state: dict) -> dict:
        """This rank's part of a checkpoint.

        Raises:
            CheckpointError: it is of another model; on every rank, whichever stage lacks something.
        """
        require_fit(state["model"], self.pipeline.shapes)
        weights = {name: state["model"][name] for name in self.pipeline.state_dict()}
        if "optimizer" not in state:
            return state | {"model": weights}
        places = {name: place for place, name in enumerate(self.pipeline.names)}
        saved, own = state["optimizer"], self.pipeline.own_parameters()
        if len(saved["param_groups"][0]["params"]) != len(places):
            # A model with other parameters: loading the optimizer refuses it, as in one process.
            return state | {"model": weights}
        entries = [saved["state"].get(places[_once(name, places)]) for name in own]
        group = dict(saved["param_groups"][0]) | {"params": list(range(len(own)))}
        optimizer = {"state": {i: entry for i, entry in enumerate(entries) if entry}, "param_groups": [group]}
        return state | {"model": weights, "optimizer": optimizer}

    def _on_main(self, part: tuple) -> list[tuple]:
        plan, group = self.pipeline.plan, self.pipeline.mesh["stage"].get_group()
        if plan.replica != 0:
            return []
        parts: list = [None] * plan.ranks if plan.position == 0 else None
        dist.gather_object(part, parts, dst=0, group=group)
        return parts or []


def _once(name: str, places: dict[str, int]) -> str:
    """The name under which the whole model counts a parameter: a tied head is its embedding."""
    return EMBEDDING if name == HEAD and HEAD not in places else name


def _entries(optimizer: Optimizer) -> list[dict]:
    state = optimizer.state_dict()["state"]
    return [state.get(place, {}) for place in range(len(optimizer.param_groups[0]["params"]))]


def _on_cpu(value: object) -> object:
    if isinstance(value, Tensor):
        return value.detach().cpu()
    if isinstance(value, dict):
        return {name: _on_cpu(item) for name, item in value.items()}
    return value
