"""What the experiments of a pipeline share: a language model in stages, a batch, and steps that can be timed.

Bytes are random: what a step takes does not depend on them.
"""

import argparse
from collections.abc import Callable, Sequence

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn import functional as F

from distlab import models, process, stages
from distlab.stages.timing import StageTimer


def options(description: str | None, width: int = 256, context: int = 32) -> argparse.ArgumentParser:
    """A parser with the size of the model.

    Args:
        width, context: on a CPU. A GPU that computes so small a model measures how fast it is called.
    """
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--layers", type=int, default=8)
    parser.add_argument("--width", type=int, help=f"{width} on a CPU, 1024 on a GPU")
    parser.add_argument("--heads", type=int, default=4)
    parser.add_argument("--context", type=int, help=f"{context} on a CPU, 256 on a GPU")
    parser.set_defaults(sizes={"cpu": (width, context), "cuda": (1024, 256)})
    return parser


def whole(me: process.Rank, args: argparse.Namespace) -> models.LanguageModel:
    """The model of these `options`, not cut, on the CPU."""
    width, context = args.sizes[me.device.type]
    return models.LanguageModel(args.layers, args.width or width, args.heads, args.context or context)


def text(me: process.Rank, model: models.LanguageModel, samples: int, seed: int = 0) -> tuple[Tensor, Tensor]:
    """Random bytes as long as the model's context, and those that follow."""
    dice = torch.Generator().manual_seed(seed)
    size = samples, len(model.positional_embedding.weight) + 1
    bytes_ = torch.randint(models.VOCABULARY, size, generator=dice).to(me.device)
    return bytes_[:, :-1].contiguous(), bytes_[:, 1:].contiguous()


class Case:
    """A pipeline of one schedule, and a batch of as many equal microbatches as asked for.

    Args:
        args: of `options`.
        samples: of one microbatch.
        more: other options of `stages.plan`: cut, replicas, inside.

    Raises:
        ValueError: the schedule does not allow it, as `stages.plan` says.
    """

    def __init__(
        self, me: process.Rank, args: argparse.Namespace, schedule: str, microbatches: int, samples: int, **more: object
    ) -> None:
        words = {"schedule": schedule, "microbatches": microbatches, "batch_size": samples * microbatches}
        usual, model = stages.options().parse_args([]), whole(me, args)
        size = {"layers": args.layers, "context": model.positional_embedding.num_embeddings}
        chosen = argparse.Namespace(**vars(usual) | size | words | more)
        self.plan = stages.plan(chosen, me)
        self.batch, self.labels = text(me, model, samples * microbatches, self.plan.replica)
        self.model = stages.Pipeline(me, self.plan, model, chosen)

    def work(self, optimizer: torch.optim.Optimizer | None = None) -> None:
        """Forward and backward of all microbatches; with an optimizer also what replicas share, and the update."""
        self.model.step(self.model, optimizer, self.batch, self.labels, 1.0, optimizer is not None)

    def step(self, optimizer: torch.optim.Optimizer | None = None) -> None:
        """The same, and gradients are gone at the end."""
        self.work(optimizer)
        self.model.zero_grad()

    def watched(self) -> tuple[float, list[dict]]:
        """A step without its update: milliseconds until the last rank is done, and this rank's spans."""
        with StageTimer(self.model) as watch:
            watch.start()
            self.step()
            own = watch.milliseconds()
        return slowest(own, self.model.me), watch.spans


class Alone:
    """The same microbatches through the whole model in one process, without any message."""

    def __init__(self, me: process.Rank, args: argparse.Namespace, microbatches: int, samples: int) -> None:
        self.me, self.model = me, whole(me, args).to(me.device)
        self.microbatches = microbatches
        pair = text(me, self.model, samples * microbatches)
        self.pieces = list(zip(*(tensor.chunk(microbatches) for tensor in pair), strict=True))

    def milliseconds(self, at_once: bool = False) -> float:
        """Time of a step without its update on rank 0 while others wait; at once: on each, the last one counts."""
        dist.barrier()
        start = process.now(self.me.device)
        if at_once or self.me.is_main:
            for batch, labels in self.pieces:
                F.cross_entropy(self.model(batch), labels).div(len(self.pieces)).backward()
            self.model.zero_grad()
        return slowest(1000 * (process.now(self.me.device) - start), self.me)


def slowest(value: float, me: process.Rank) -> float:
    """The largest of all ranks' values, the same on each."""
    largest = torch.tensor(value, dtype=torch.float64, device=me.message_device)
    dist.all_reduce(largest, dist.ReduceOp.MAX)
    return largest.item()


def shape(case: Case) -> dict:
    """What every record says of a case."""
    plan = case.plan
    return {
        "schedule": plan.schedule,
        "ranks": plan.ranks,
        "stages": len(plan.cut),
        "cut": plan.cut,
        "microbatches": plan.microbatches,
    }


def least_disturbed(steps: Sequence[tuple[float, list[dict]]]) -> tuple[float, list[dict]]:
    """The quickest of some steps of `Case.watched`, the same one on all ranks."""
    return min(steps, key=lambda step: step[0])


def by_itself(part: nn.Module, batch: Tensor, labels: Tensor) -> Callable[[], Tensor]:
    """The forward of one stage on one microbatch, with the loss if it is the last one, without any other rank.

    Args:
        batch: of the pipeline; any stage but the first takes random numbers in its place.
    """
    size: tuple = *batch.shape, part.embedding_dim
    x = batch if part.token_embedding is not None else torch.randn(size, device=batch.device, requires_grad=True)
    return lambda: part(x) if part.head is None else F.cross_entropy(part(x), labels)
