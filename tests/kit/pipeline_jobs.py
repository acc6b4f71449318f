"""scripts/pipeline.py on ranks and scripts/language.py in one process, many times over, for tests to compare."""

import contextlib
import io
from collections.abc import Callable
from pathlib import Path
from unittest.mock import patch

from distlab import loop, models, process
from distlab.scripts import language, pipeline
from distlab.stages.gradients import GradientSync
from torch import Tensor, nn
from torch.nn.utils import clip_grad_norm_
from training_jobs import caught

# 32 sequences: 4 updates of 8, or 2 of 16, in an epoch.
SMALL = (
    "--layers 8 --embedding-dim 16 --heads 2 --context 16 --batch-size 8 --limit 550 "
    "--epochs 2 --warmup-epochs 1 --generate 5"
)
SCHEDULES = ("gpipe", "1f1b", "interleaved", "zero-bubble")
# Shorter than every gradient of this training.
CLIP = 0.05
HALF = "--max-steps 3"


def run(main: Callable[[list[str]], list[dict]], words: str) -> dict:
    """What a script makes of the words: records, what it said, the text that its model wrote, the model itself."""
    models_seen, texts, said, fit, generate = [], [], io.StringIO(), loop.fit, models.generate

    def noted(me, model, *more, **options):
        models_seen.append(model)
        return fit(me, model, *more, **options)

    def heard(*given):
        texts.append(generate(*given))
        return texts[-1]

    with contextlib.ExitStack() as during:
        for patched in (patch.object(loop, "fit", noted), patch.object(models, "generate", heard)):
            during.enter_context(patched)
        during.enter_context(contextlib.redirect_stdout(said))
        records = main(f"{SMALL} {words}".split())
    return {"records": records, "said": said.getvalue(), "text": texts[0], "model": models_seen[0]}


def in_pipeline(me: process.Rank, folder: Path, name: str, words: str) -> dict:
    """scripts/pipeline.py in a group that is there already; its checkpoint is NAME.pt."""
    norms, norm = [], GradientSync.norm

    def noted(shared: GradientSync) -> Tensor:
        norms.append(norm(shared))
        return norms[-1]

    inside = patch.object(process, "group", lambda: contextlib.nullcontext(me))
    with inside, patch.object(GradientSync, "norm", noted):
        answer = run(pipeline.main, f"--checkpoint {file_of(folder, name)} {words}")
    own = {name: value.numpy().copy() for name, value in answer.pop("model").state_dict().items()}
    return answer | {"own": own, "norms": [value.item() for value in norms]}


def file_of(folder: Path, name: str) -> Path:
    return folder / f"{name.replace(' ', '-')}.pt"


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
        answer = run(language.main, f"--checkpoint {file_of(folder, name)} {words}")
    del answer["model"]
    return answer | {"norms": norms}


# Name of a training in one process: its words.
ALONE = {
    "plain": "",
    "tied": "--tied",
    "double": "--batch-size 16",
    "double tied": "--batch-size 16 --tied",
    "accumulated": "--accumulate 3",
    "stopped": HALF,
    "stopped tied": f"{HALF} --tied",
    "shallow": "--max-steps 1 --layers 7",
    "deep": "--max-steps 1 --layers 9",
    "short": "--max-steps 1 --context 8",
}
CLIPPED = {"clipped": "", "clipped tied": "--tied", "clipped double tied": "--batch-size 16 --tied"}


def twins(folder: Path) -> dict:
    """One process; what all pipelines are compared with, and what some begin with."""
    return {
        **{name: alone(folder, name, words) for name, words in ALONE.items()},
        **{name: alone(folder, name, words, clip=True) for name, words in CLIPPED.items()},
        "speaks": alone(folder, "speaks", f"--resume {file_of(folder, 'plain')} --generate 40"),
    }


# Name of a training: the name of its twin, and its words.
ON_TWO = {
    **{schedule: ("plain", f"--schedule {schedule}") for schedule in SCHEDULES},
    **{f"{schedule} tied": ("tied", f"--schedule {schedule} --tied") for schedule in ("gpipe", "zero-bubble")},
    "by trace": ("plain", "--schedule interleaved --trace --cut 1,3,2,2"),
    "clipped": ("clipped tied", f"--schedule zero-bubble --tied --clip {CLIP}"),
}
ON_FOUR = {
    **{schedule: ("plain", f"--schedule {schedule}") for schedule in SCHEDULES},
    **{f"{schedule} tied": ("tied", f"--schedule {schedule} --tied") for schedule in SCHEDULES},
    "uneven": ("plain", "--cut 1,3,3,1 --microbatches 8"),
    "by trace": ("plain", "--schedule 1f1b --trace --cut 1,3,3,1"),
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


def second_halves(folder: Path, writers: tuple[str, ...], schedules: tuple[str, str]) -> dict[str, tuple[str, str]]:
    """Trainings that go on where others, on other numbers of ranks, have stopped."""
    cases = {}
    for writer in writers:
        for twin, name, schedule in zip(("plain", "tied"), ("stopped", "stopped tied"), schedules, strict=True):
            tied = "--tied" if twin == "tied" else ""
            words = f"--resume {file_of(folder.parent / writer, name)} --schedule {schedule} {tied}"
            cases[f"{twin} after {writer}"] = (twin, words)
    return cases


def trained(me: process.Rank, folder: Path, cases: dict[str, tuple[str, str]]) -> dict:
    return {name: in_pipeline(me, folder, name, words) for name, (_, words) in cases.items()}


def first_halves(me: process.Rank, folder: Path, schedules: tuple[str, str]) -> None:
    in_pipeline(me, folder, "stopped", f"{HALF} --schedule {schedules[0]}")
    in_pipeline(me, folder, "stopped tied", f"{HALF} --schedule {schedules[1]} --tied")


def two_ranks(folder: Path) -> dict:
    """All trainings on two ranks."""
    with process.group() as me:
        first_halves(me, folder, ("1f1b", "zero-bubble"))
        return trained(me, folder, ON_TWO)


def four_ranks(folder: Path) -> dict:
    """All trainings on four ranks, after `two_ranks`, and what they refuse."""
    with process.group() as me:
        first_halves(me, folder, ("interleaved", "gpipe"))
        found = trained(me, folder, ON_FOUR | on_four_after_others(folder))
        one = folder.parent / "one"
        found["speaks"] = in_pipeline(me, folder, "speaks", f"--resume {file_of(one, 'plain')} --generate 40")

        def refused(name: str, words: str = "") -> str:
            words = f"--no-checkpoint --resume {file_of(one, name)} {words}"
            return caught(in_pipeline, me, folder, "refused", words)

        found["refused"] = {
            **{name: refused(name) for name in ("shallow", "deep", "short")},
            "tied into untied": refused("tied"),
            "untied into tied": refused("plain", "--tied"),
            "smaller batch": refused("stopped", "--batch-size 16"),
        }
        return found


def on_four_after_others(folder: Path) -> dict[str, tuple[str, str]]:
    return second_halves(folder, ("one", "two"), ("zero-bubble", "1f1b"))


def on_two_after_four(folder: Path) -> dict[str, tuple[str, str]]:
    return second_halves(folder, ("four",), ("gpipe", "zero-bubble"))


def two_ranks_after_four(folder: Path) -> dict:
    with process.group() as me:
        return trained(me, folder, on_two_after_four(folder))


def one_after_others(folder: Path) -> dict:
    """scripts/language.py goes on where pipelines stopped."""
    found = {}
    for writer in ("two", "four"):
        for twin, name, tied in (("plain", "stopped", ""), ("tied", "stopped tied", "--tied")):
            case = f"{twin} after {writer}"
            found[case] = alone(folder, case, f"--resume {file_of(folder.parent / writer, name)} {tied}")
    return found
