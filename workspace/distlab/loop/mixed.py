"""A training step in mixed precision: autocast, a scaled loss, clipping."""

from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import Module, functional, utils
from torch.optim import Optimizer

from distlab import report
from distlab.loop.step import require_finite
from distlab.process import Rank


@dataclass
class MixedStep:
    """A `step` for `fit`, see `train_step`. Reports `scale` when the loss scale changes."""

    me: Rank
    dtype: torch.dtype | None  # of autocast; None is float32 throughout
    layout: torch.memory_format  # of the images
    scaler: torch.amp.GradScaler
    clip: float | None = None  # norm to which gradients are clipped

    def __call__(
        self, model: Module, optimizer: Optimizer, images: Tensor, labels: Tensor, share: float, update: bool
    ) -> tuple[Tensor, Tensor]:
        with torch.autocast(self.me.device.type, self.dtype, enabled=self.dtype is not None):
            logits = model(images.contiguous(memory_format=self.layout))
            loss = functional.cross_entropy(logits, labels)
        # Unscaled, so an infinite loss is no overflow of the scale, and skipping the update would not help.
        require_finite(loss)
        self.scaler.scale(loss * share).backward()
        if update:
            self.scaler.unscale_(optimizer)
            if self.clip:
                utils.clip_grad_norm_(model.parameters(), self.clip)
            before = self.scaler.get_scale()
            self.scaler.step(optimizer)
            self.scaler.update()
            optimizer.zero_grad()
            if self.scaler.get_scale() != before:
                report.log(self.me, "scale", before=before, after=self.scaler.get_scale())
        return loss.detach(), logits.detach()
