"""What ranks do in the tests of the pipeline's experiments."""

import os
import sys
import time
from argparse import Namespace
from contextlib import nullcontext
from importlib import import_module

import torch
from distlab import models, process
from distlab.lessons.pipeline.case import Alone, Case
from distlab.stages.timing import StageTimer

SIZE = Namespace(layers=4, width=16, heads=2, context=8, sizes={"cpu": (0, 0)})
WORDS = ("--layers", "4", "--width", "16", "--heads", "2", "--context", "8")
SLEEP = 0.03


def experiment(name: str, *words: object) -> None:
    """Run an experiment on two hosts, of which the second has the later half of the ranks."""
    rank, ranks = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    os.environ["DISTLAB_HOST"] = f"node{1 + 2 * rank // ranks}"
    sys.argv = [name, *map(str, words)]
    import_module(f"distlab.lessons.pipeline.experiments.{name}").main()


def slow_head(*words: object) -> None:
    """pipe_balance with a head that takes long."""
    forward = models.LanguageModel.forward

    def slow(part: models.LanguageModel, x: torch.Tensor) -> torch.Tensor:
        if part.head is not None:
            time.sleep(SLEEP)
        return forward(part, x)

    models.LanguageModel.forward = slow
    experiment("balance", *words)


def waiting() -> tuple[list[dict], list[str]]:
    """Spans of a step in which rank 1 is slow; and what the watch leaves behind on the stages."""
    with process.group() as me:
        case = Case(me, SIZE, "1f1b", 4, 1)
        case.step()
        if me.rank == 1:
            case.model.parts[0].register_forward_pre_hook(lambda *_: time.sleep(SLEEP))
        _, spans = case.watched()
        return spans, sorted(name for stage in case.model.stages for name in vars(stage) if name.endswith("_chunk"))


def gradients() -> tuple[list, list, list]:
    """Of a watched step, of one that nobody watches, and of the same microbatches in one process."""
    with process.group() as me:
        case = Case(me, SIZE, "zero-bubble", 4, 2)
        found = []
        for watch in (nullcontext(), StageTimer(case.model)):
            with watch:
                case.work()
            found.append({name: parameter.grad.tolist() for name, parameter in case.model.own_parameters().items()})
            case.model.zero_grad()
        alone = Alone(me, SIZE, 4, 2)
        # What it computes would be gone at its end.
        alone.model.zero_grad = lambda: None
        alone.milliseconds(at_once=True)
        whole = {name: parameter.grad.tolist() for name, parameter in alone.model.named_parameters()}
        return found[0], found[1], {name: whole[name] for name in found[0]}
