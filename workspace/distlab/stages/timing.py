"""When each of a rank's stages works."""

from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist

from distlab import process
from distlab.measure.clock import ahead_of_rank_0
from distlab.stages.pipeline import Pipeline

FORWARD, BACKWARD, INPUT, WEIGHTS = "forward", "backward", "backward input", "backward weights"


class StageTimer:
    """Times the forward and backward passes of this rank's stages.

        with StageTimer(model) as timer:
            timer.start()
            model.step(...)
        timer.spans

    Waiting, messages and the loss are left out. In zero-bubble torch 2.14 does the first stage's whole
    backward in the part for weights, so its span for inputs has almost no length.

    On a GPU each pass is waited for, since it is still running when its call returns.

    Attributes:
        spans: {kind, stage, microbatch, start, end}, in milliseconds since `start`, in order.
    """

    def __init__(self, model: Pipeline) -> None:
        self.stages, self.me, self.device = model.stages, model.me, model.me.device
        self.ahead = ahead_of_rank_0(model.me)
        self.spans: list[dict] = []
        self.began = 0.0

    def start(self) -> None:
        """Start the clock for a step, on all ranks at the time of rank 0. All must call it."""
        self.spans = []
        dist.barrier()
        began = torch.tensor(process.now(self.device), dtype=torch.float64, device=self.me.message_device)
        dist.broadcast(began, src=0)
        self.began = began.item() + self.ahead

    def milliseconds(self) -> float:
        """Time since the step began."""
        return 1000 * (process.now(self.device) - self.began)

    def __enter__(self) -> "StageTimer":
        for stage in self.stages:
            number = stage.stage_index
            stage.forward_one_chunk = self._timed(stage.forward_one_chunk, number, lambda _: FORWARD)
            stage.backward_one_chunk = self._timed(stage.backward_one_chunk, number, _kind_of_backward)
            stage.backward_weight_one_chunk = self._timed(stage.backward_weight_one_chunk, number, lambda _: WEIGHTS)
        return self

    def __exit__(self, *_: object) -> None:
        for stage in self.stages:
            # What is left is the methods of the class.
            del stage.forward_one_chunk, stage.backward_one_chunk, stage.backward_weight_one_chunk

    def _timed(self, call: Callable, stage: int, kind: Callable[[dict], str]) -> Callable:
        def timed(microbatch: int, *values: Any, **options: Any) -> Any:
            start = self.milliseconds()
            answer = call(microbatch, *values, **options)
            end = self.milliseconds()
            self.spans.append(
                {"kind": kind(options), "stage": stage, "microbatch": microbatch, "start": start, "end": end}
            )
            return answer

        return timed


def _kind_of_backward(options: dict) -> str:
    return BACKWARD if options.get("full_backward", True) else INPUT
