"""A model over several devices of one process: each has a stage, and a batch may be cut into microbatches."""

from collections.abc import Sequence

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from distlab.models import LanguageModel
from distlab.stages.cut import evenly, stage_of


class _LentHead(nn.Module):
    """The head of a tied model: each use copies the matrix from the embedding's device and sends its gradient back."""

    def __init__(self, weight: Tensor) -> None:
        super().__init__()
        self.weight = weight

    def forward(self, x: Tensor) -> Tensor:
        return F.linear(x, self.weight.to(x.device))


class OnDevices(nn.Module):
    """A language model with a stage on each device. Its parameters keep their names and their order.

    From bytes (N, T), int64, to logits (N, 256, T), both on the same device. On the last
    stage's device logits are not copied.

    With `microbatches`, a batch is cut by torch.chunk (Huang et al. 2019, arXiv
    1811.06965). GPUs work asynchronously, so stage 1 works on one microbatch while stage 0 works on the
    next. On a CPU, or with all stages on one GPU, they take turns.

    Args:
        model: whole; its parts become this module's.
        devices: of stages 0, 1, ...; they may be the same.
        microbatches: of a batch; 1 is plain model parallelism.

    Raises:
        SettingError: there are more stages than layers.
    """

    def __init__(self, model: LanguageModel, devices: Sequence[torch.device], microbatches: int = 1) -> None:
        super().__init__()
        if model.tied:
            model.head = _LentHead(model.token_embedding.weight)
        cut = evenly(len(model.blocks), len(devices))
        for name, part in model.named_children():
            self.add_module(name, part)
        self.devices, self.microbatches = tuple(devices), microbatches
        # In a tuple, so that parts are not registered a second time.
        self.stages = tuple(stage_of(model, cut, stage) for stage in range(len(cut)))
        # The first stage last, so that it keeps the matrix of a tied model.
        for stage, device in reversed(list(zip(self.stages, self.devices, strict=True))):
            stage.to(device)

    def forward(self, batch: Tensor) -> Tensor:
        """The last stage's output for a batch, on the batch's own device; its microbatches one after the other."""
        outputs = []
        for piece in batch.chunk(self.microbatches):
            x = piece
            for stage in range(len(self.stages)):
                x = self.work(stage, x)
            outputs.append(x)
        return torch.cat(outputs).to(batch.device)

    def predict(self, text: Tensor) -> Tensor:
        """Bytes (1, T) to logits (1, 256, T)."""
        return self(text)

    def work(self, stage: int, x: Tensor) -> Tensor:
        """One piece through one stage, to whose device it comes first."""
        return self.stages[stage](x.to(self.devices[stage]))
