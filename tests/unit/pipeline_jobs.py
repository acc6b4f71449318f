"""scripts/pipeline.py on ranks and scripts/language.py in one process, many times over, for tests to compare."""

import contextlib
import io
from pathlib import Path
from unittest.mock import patch

import torch
from distlab import loop, models, process
from distlab.scripts import language, pipeline
from distlab.stages.shared import Shared
from torch import Tensor, nn
from torch.nn.utils import clip_grad_norm_
from training_jobs import caught

# 32 sequences: 4 updates of 8, or 2 of 16, in an epoch.
SMALL = "--layers 8 --width 16 --heads 2 --context 16 --batch-size 8 --limit 550 --epochs 2 --warmup-epochs 1 --say 5"
SCHEDULES = ("gpipe", "1f1b", "interleaved", "zero-bubble")
# Shorter than every gradient of this training.
CLIP = 0.05
STOP = 3


def run(main, words: str) -> dict:
    """What a script's `main` makes of the words: records, what it said, this rank's model."""
    fitted, said, fit = [], io.StringIO(), loop.fit

    def noted(me, model, *more, **options):
        fitted.append(model)
        return fit(me, model, *more, **options)

    with patch.object(loop, "fit", noted), contextlib.redirect_stdout(said):
        records = main(f"{SMALL} {words}".split())
    return {"records": records, "said": said.getvalue(), "model": fitted[0]}


def in_pipeline(me: process.Rank, folder: Path, name: str, words: str) -> dict:
    """scripts/pipeline.py in a group that is there already; its checkpoint is NAME.pt."""
    norms, norm = [], Shared.norm

    def noted(shared: Shared) -> Tensor:
        norms.append(norm(shared))
        return norms[-1]

    inside = patch.object(process, "group", lambda: contextlib.nullcontext(me))
    with inside, patch.object(Shared, "norm", noted):
        answer = run(pipeline.main, f"--checkpoint {folder / name}.pt {words}")
    own = {name: value.numpy().copy() for name, value in answer.pop("model").state_dict().items()}
    return answer | {"own": own, "norms": [one.item() for one in norms]}


def alone(folder: Path, name: str, words: str, clip: bool = False) -> dict:
    """scripts/language.py; with `clip` its gradients are shortened as torch does it."""
    norms = []

    def clipped(model: nn.Module, optimizer, inputs, labels, share: float, update: bool):
        assert share == 1 and update
        logits = model(inputs)
        loss = nn.functional.cross_entropy(logits, labels)
        loss.backward()
        norms.append(clip_grad_norm_(model.parameters(), CLIP).item())
        optimizer.step()
        optimizer.zero_grad()
        return loss.detach(), logits.detach()

    fit = loop.fit
    with patch.object(loop, "fit", lambda *given: fit(*given, step=clipped)) if clip else contextlib.nullcontext():
        answer = run(language.main, f"--checkpoint {folder / name}.pt {words}")
    del answer["model"]
    return answer | {"norms": norms}


def twins(folder: Path) -> dict:
    """One process; what all pipelines are compared with."""
    double = "--batch-size 16"
    return {
        "plain": alone(folder, "plain", ""),
        "tied": alone(folder, "tied", "--tied"),
        "double": alone(folder, "double", double),
        "double tied": alone(folder, "double-tied", f"{double} --tied"),
        "accumulated": alone(folder, "accumulated", "--accumulate 3"),
        "clipped": alone(folder, "clipped", "", clip=True),
        "clipped tied": alone(folder, "clipped-tied", "--tied", clip=True),
        "clipped double tied": alone(folder, "clipped-double-tied", f"{double} --tied", clip=True),
        "stopped": alone(folder, "stopped", f"--max-steps {STOP}"),
        "stopped tied": alone(folder, "stopped-tied", f"--max-steps {STOP} --tied"),
        "shallow": alone(folder, "shallow", "--max-steps 1 --layers 7"),
        "narrow": alone(folder, "narrow", "--max-steps 1 --width 8"),
    }


# Name of a training: the name of its twin, and its words.
ON_TWO = {
    **{schedule: ("plain", f"--schedule {schedule}") for schedule in SCHEDULES},
    **{f"{schedule} tied": ("tied", f"--schedule {schedule} --tied") for schedule in ("gpipe", "zero-bubble")},
    "by trace": ("plain", "--schedule interleaved --by trace --cut 1,3,2,2"),
    "clipped": ("clipped tied", f"--schedule zero-bubble --tied --clip {CLIP}"),
}
ON_FOUR = {
    **{schedule: ("plain", f"--schedule {schedule}") for schedule in SCHEDULES},
    **{f"{schedule} tied": ("tied", f"--schedule {schedule} --tied") for schedule in SCHEDULES},
    "uneven": ("plain", "--cut 1,3,3,1 --microbatches 8"),
    "by trace": ("plain", "--schedule 1f1b --by trace --cut 1,3,3,1"),
    "replicas inside": ("double", "--replicas 2 --inside replicas"),
    "stages inside": ("double", "--replicas 2 --inside stages"),
    "replicas inside tied": ("double tied", "--replicas 2 --schedule interleaved --tied"),
    "stages inside tied": ("double tied", "--replicas 2 --inside stages --schedule zero-bubble --tied"),
    "accumulated": ("accumulated", "--accumulate 3"),
    "accumulated, zero-bubble": ("accumulated", "--accumulate 3 --schedule zero-bubble"),
    "clipped": ("clipped", f"--clip {CLIP}"),
    "clipped tied": ("clipped tied", f"--clip {CLIP} --tied"),
    "clipped replicas": ("clipped double tied", f"--replicas 2 --inside stages --clip {CLIP} --tied"),
}


def trained(me: process.Rank, folder: Path, cases: dict[str, tuple[str, str]]) -> dict:
    return {name: in_pipeline(me, folder, name.replace(" ", "-"), words) for name, (_, words) in cases.items()}


def two_ranks(folder: Path) -> dict:
    """All trainings on two ranks, and the first halves of some."""
    with process.group() as me:
        stop = f"--max-steps {STOP}"
        in_pipeline(me, folder, "stopped", stop)
        in_pipeline(me, folder, "stopped-tied", f"{stop} --tied --schedule zero-bubble")
        return trained(me, folder, ON_TWO)


def four_ranks(folder: Path) -> dict:
    with process.group() as me:
        return trained(me, folder, ON_FOUR)
