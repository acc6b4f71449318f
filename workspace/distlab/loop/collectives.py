"""The collectives of the training loop, all in one place. Everything else in it is local."""

from collections.abc import Callable
from typing import TypeVar

import torch.distributed as dist
from torch import Tensor, nn
from torch.optim import Optimizer

from distlab.checkpoint import Stated

Value = TypeVar("Value")


class Collectives:
    """The collectives of torch.distributed; without a group, those of a world of one rank.

    All ranks must call the same method at the same point.
    """

    def all_reduce(self, sums: Tensor) -> Tensor:
        """The sum of a tensor over all ranks; the argument stays as it is."""
        sums = sums.clone()
        if dist.is_initialized():
            dist.all_reduce(sums)
        return sums

    def all_gather(self, value: Value) -> list[Value]:
        """Every rank's value, in rank order, on every rank."""
        if not dist.is_initialized():
            return [value]
        values: list = [None] * dist.get_world_size()
        dist.all_gather_object(values, value)
        return values

    def broadcast(self, value: Value) -> Value:
        """Rank 0's value, on every rank."""
        if not dist.is_initialized():
            return value
        box = [value]
        dist.broadcast_object_list(box, src=0)
        return box[0]

    def full_state(self, model: nn.Module, optimizer: Optimizer) -> tuple[Stated, Stated]:
        """What a checkpoint saves of model and optimizer on rank 0: here every rank has all of both."""
        return model, optimizer

    def own_state(self, state: dict) -> dict:
        """What this rank takes of a checkpoint's content: here all of it."""
        return state

    def from_main(self, is_main: bool, make: Callable[[], Value]) -> Value:
        """What `make` returns or raises on rank 0, on every rank.

        For what only rank 0 may have, such as a file: if that fails, the other ranks must not hang.
        """
        made: list[Value] = []
        failure: Exception | None = None
        if is_main:
            try:
                made.append(make())
            except Exception as error:
                failure = error
        made, failure = self.broadcast((made, failure))
        if failure is not None:
            raise failure
        return made[0]
