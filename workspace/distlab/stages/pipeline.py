"""One rank's stages of a model, and the schedule that they follow together with those of other ranks."""

import argparse
from collections.abc import Callable, Mapping
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.pipelining import (
    PipelineStage,
    Schedule1F1B,
    ScheduleGPipe,
    ScheduleInterleaved1F1B,
    ScheduleZBVZeroBubble,
    SplitPoint,
    pipeline,
)
from torch.nn import functional as F
from torch.optim import Optimizer

from distlab.errors import SettingError
from distlab.loop import require_finite
from distlab.models import VOCABULARY, LanguageModel
from distlab.process import Rank
from distlab.stages.cut import stage_of
from distlab.stages.gradients import GradientSync
from distlab.stages.planning import Plan, rank_of

CLASSES = {
    "gpipe": ScheduleGPipe,
    "1f1b": Schedule1F1B,
    "interleaved": ScheduleInterleaved1F1B,
    "zero-bubble": ScheduleZBVZeroBubble,
}


class Pipeline(nn.Module):
    """This rank's stages. Looks like a model that has only their parameters, under the whole model's names.

    All ranks of a pipeline must call the same method at the same point, with the same batch.

    Args:
        model: the whole model, on the CPU; the same on every rank.
        args: of `stages.options`. Each batch must have batch_size samples of context bytes. To make stages,
            `trace` lets torch.export find them, else they are made of the model's blocks. `clip` is the norm
            to which the gradient over all stages is clipped, or None.
    """

    def __init__(self, me: Rank, plan: Plan, model: LanguageModel, args: argparse.Namespace) -> None:
        super().__init__()
        self.me, self.plan, self.embedding_dim = me, plan, model.embedding_dim
        self.batch_size, self.context, self.clip = args.batch_size, args.context, args.clip
        shape = {"stage": plan.ranks, "replica": plan.replicas}
        names = ("replica", "stage") if plan.inside == "stages" else ("stage", "replica")
        self.mesh = init_device_mesh(me.message_device.type, tuple(map(shape.get, names)), mesh_dim_names=names)
        group = self.mesh["stage"].get_group()
        self.names = [name for name, _ in model.named_parameters()]
        self.shapes = {name: value.to("meta") for name, value in model.state_dict().items()}
        make = self._traced(model) if args.trace else self._of_blocks(model)
        self.stages = [make(stage, group) for stage in plan.own]
        self.parts = nn.ModuleList(stage.submod for stage in self.stages).to(me.device)
        self._across_devices()
        own = self.stages if len(self.stages) > 1 else self.stages[0]
        self.schedule = CLASSES[plan.schedule](own, plan.microbatches, loss_fn=self._loss, scale_grads=False)
        self.gradients = GradientSync(self.mesh, plan, self.own_parameters(), model.tied)
        self.share = 1.0

    def _of_blocks(self, model: LanguageModel) -> Callable[[int, dist.ProcessGroup], PipelineStage]:
        cut, device = self.plan.cut, self.me.message_device
        return lambda stage, group: PipelineStage(stage_of(model, cut, stage), stage, len(cut), device, group=group)

    def _traced(self, model: LanguageModel) -> Callable[[int, dist.ProcessGroup], Any]:
        cut = self.plan.cut
        firsts = [str(sum(cut[:stage])) for stage in range(1, len(cut))]
        example = torch.zeros(self.batch_size // self.plan.microbatches, self.context, dtype=torch.int64)
        pipe = pipeline(model, (example,), split_spec={f"blocks.{block}": SplitPoint.BEGINNING for block in firsts})
        return lambda stage, group: pipe.build_stage(stage, self.me.message_device, group=group)

    def _across_devices(self) -> None:
        """gloo sends from the CPU only: stages on a GPU then copy their input from there and their output to it."""
        if self.me.message_device == self.me.device:
            return
        for part in self.parts:
            part.register_forward_pre_hook(lambda _, inputs: tuple(x.to(self.me.device) for x in inputs))
            part.register_forward_hook(lambda _module, _inputs, output: output.to(self.me.message_device))

    def _loss(self, logits: Tensor, labels: Tensor) -> Tensor:
        # Microbatches are equally large, so the batch's mean is the mean of theirs.
        return F.cross_entropy(logits, labels.to(logits.device)) * (self.share / self.plan.microbatches)

    def state_dict(self, *_: Any, **__: Any) -> dict[str, Tensor]:  # type: ignore[override]  # always a new dict
        """Weights of this rank's stages by the whole model's names."""
        return {name: value for part in self.parts for name, value in part.state_dict().items()}

    def load_state_dict(self, state_dict: Mapping[str, Tensor], *_: Any, **__: Any) -> None:
        """Take this rank's weights."""
        for part in self.parts:
            part.load_state_dict({name: state_dict[name] for name in part.state_dict()})

    def own_parameters(self) -> dict[str, nn.Parameter]:
        """This rank's parameters by the whole model's names, each once."""
        named = (pair for part in self.parts for pair in part.named_parameters())
        seen: dict[int, str] = {}
        return {name: value for name, value in named if seen.setdefault(id(value), name) == name}

    @torch.no_grad()
    def forward(self, batch: Tensor) -> Tensor | None:
        """Bytes (batch_size, T) to logits (batch_size, 256, T) on the rank with the last stage, None on others.

        For validation: without gradients.
        """
        self._require_size(batch)
        pieces = batch.to(self.me.message_device).chunk(self.plan.microbatches)
        sent: list[dist.Work] = []
        # Not schedule.eval, which fails where two consecutive stages are on one rank.
        outputs = [self._through(piece, sent) for piece in pieces]
        for message in sent:
            message.wait()
        return torch.cat(outputs).to(self.me.device) if self.plan.is_last else None

    def _through(self, piece: Tensor, sent: list[dist.Work]) -> Tensor | None:
        """One microbatch through this rank's stages, in the order of stages over all ranks."""
        group, last = self.mesh["stage"].get_group(), len(self.plan.cut) - 1
        x = piece
        for stage, part in zip(self.plan.own, self.parts, strict=True):
            before, after = (
                rank_of(neighbour, self.plan.schedule, self.plan.ranks) for neighbour in (stage - 1, stage + 1)
            )
            if stage > 0 and before != self.plan.position:
                x = torch.empty(*piece.shape, self.embedding_dim, device=piece.device)
                dist.recv(x, group=group, group_src=before)
            x = part(x)
            if stage < last and after != self.plan.position:
                sent.append(dist.isend(x.contiguous(), group=group, group_dst=after))
        return x

    def predict(self, text: Tensor) -> Tensor:
        """Bytes (1, T) to logits (1, 256, T), on every rank of the pipeline."""
        batch = text.new_zeros(self.batch_size, self.context)
        # Padding changes nothing: attention is causal, and rows do not see each other.
        batch[0, : text.shape[1]] = text[0]
        logits = self(batch)
        answer = torch.empty(1, VOCABULARY, text.shape[1], device=self.me.message_device)
        if logits is not None:
            answer.copy_(logits[:1, :, : text.shape[1]])
        dist.broadcast(answer, group=self.mesh["stage"].get_group(), group_src=self.plan.last)
        return answer

    def step(
        self, _: nn.Module, optimizer: Optimizer, batch: Tensor, labels: Tensor, share: float, update: bool
    ) -> tuple[Tensor, Tensor | None]:
        """A `step` for `loop.fit`, see `loop.train_step`: microbatches through all stages, forward and backward."""
        self._require_size(batch)
        self.share = share
        losses: list[Tensor] = []
        targets = {"target": labels, "losses": losses} if self.plan.is_last else {}
        try:
            logits = self.schedule.step(*self._first(batch), **targets)
        except RuntimeError as error:
            # torch wraps a stage's own error in one that lists the shapes of its inputs.
            raise error.__cause__ or error from None
        loss = torch.stack(losses).sum() / share if losses else torch.zeros(())
        require_finite(loss)
        if update:
            self.gradients.all_reduce()
            if self.clip:
                self.gradients.clip_by_norm(self.clip)
            optimizer.step()
            optimizer.zero_grad()
        return loss.detach().to(self.me.device), None if logits is None else logits.detach().to(self.me.device)

    def _first(self, batch: Tensor) -> tuple[Tensor, ...]:
        # On other ranks torch would take the batch for an input of their first stage.
        return (batch.to(self.me.message_device),) if self.plan.is_first else ()

    def _require_size(self, batch: Tensor) -> None:
        if len(batch) != self.batch_size:
            raise SettingError(
                f"rank {self.me.rank} on {self.me.host}: a batch of {len(batch)} samples in a pipeline that was made "
                f"for {self.batch_size}: leave the smaller last batch out, or use the --batch-size of the checkpoint"
            )
