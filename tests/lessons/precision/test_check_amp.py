"""The exercise amp: the solution holds, the starter is told where to start, planted mistakes are named."""

import functools
import subprocess
import sys
from pathlib import Path

import exercise
import pytest
from distlab.checks import CheckResult, check
from distlab.checks.engine import Job
from distlab.launch import run
from distlab.runs import WORKSPACE
from exercise import assert_named, assert_says, broken_when, line_of, one_line, states

edited = functools.partial(exercise.edited, "amp")
REQUIREMENTS = ["runs", "weights", "images", "autocast", "scales", "clips", "skips", "resumes", "learns", "loss"]
# What cannot be judged before a requirement holds.
WAIT_FOR = {
    "runs": REQUIREMENTS[1:],
    "autocast": ["scales", "clips", "skips", "resumes", "learns"],
    "scales": ["clips", "skips", "resumes", "learns"],
    "clips": ["resumes", "learns"],
    # Weights that are not finite have no loss.
    "skips": ["resumes", "learns", "loss"],
    "resumes": ["learns"],
}

TO_MODEL = "model.to(device, memory_format=torch.channels_last)"
TO_IMAGES = "x, y = x.to(device, memory_format=torch.channels_last), y.to(device)"
FORWARD = (
    "            with torch.autocast(device.type, dtype):\n"
    "                loss = cross_entropy(model(x), y)\n"
    "            optimizer.zero_grad()\n"
)
BACKWARD = "            scaler.scale(loss).backward()\n"
SCALER = "torch.amp.GradScaler(device.type, enabled=dtype == torch.float16)"
UNSCALE = "            scaler.unscale_(optimizer)\n"
CLIP = "            clip_grad_norm_(model.parameters(), max_norm)\n"
STEP = "            scaler.step(optimizer)\n"
UPDATE = "            scaler.update()\n"
KEEP = ', "scaler": scaler.state_dict()}'
LOAD = '        scaler.load_state_dict(state["scaler"])\n'
WITHOUT_SCALER = [
    ("scaler.scale(loss).backward()", "loss.backward()"),
    (UNSCALE, ""),
    ("scaler.step(optimizer)", "optimizer.step()"),
    (UPDATE, ""),
]


@pytest.fixture(scope="module")
def solved() -> CheckResult:
    return check("amp", file="solutions/amp.py")


def test_solution_holds(solved):
    assert states(solved) == dict.fromkeys(REQUIREMENTS, "holds")
    assert solved.mistakes == []
    assert solved.printed == []
    said = str(solved)
    assert said.startswith("amp: solutions/amp.py on node1 (rank")
    assert said.endswith("\n\nAll 10 hold: this exercise is done.")


def test_training_seen_is_the_one_that_was_asked_for(solved):
    """Not only that nothing is wrong: steps, the overflow, the scale before and after it, gradients of each kind."""
    record = solved.run.last("trained")[0]
    first, resumed, bfloat16 = record["first"], record["resumed"], record["bfloat16"]
    assert [len(call["steps"]) for call in (first, resumed, bfloat16)] == [10, 5, 5]
    assert [step["overflowed"] for step in first["steps"]] == [False, False, True, *[False] * 7]
    assert [step["taken"] for step in first["steps"]] == [1, 1, 0, *[1] * 7]
    assert [step["scale"] for step in first["steps"]] == pytest.approx([65536] * 3 + [32768] * 7, rel=0.01)
    assert [step["scale"] for step in resumed["steps"]] == pytest.approx([32768] * 5, rel=0.01)
    assert [step["scale"] for step in bfloat16["steps"]] == pytest.approx([1] * 5, rel=0.01)
    # Every step of the first call is clipped and none of the second, so that both ways are judged.
    assert all(step["norm_float32"] > first["max_norm"] for step in first["steps"])
    assert all(step["norm"] < resumed["max_norm"] / 10 for step in resumed["steps"])
    assert max(step["vanished"] for step in [*first["steps"], *resumed["steps"]]) < 0.01
    seen = [step["off"] for call in (first, resumed, bfloat16) for step in call["steps"] if step["taken"]]
    assert max(seen) < 0.05
    assert record["ends_off"] < 0.05


def test_starter_is_told_where_to_start(capsys):
    result = check("amp")
    assert states(result) == {
        "runs": "holds",
        "weights": "broken",
        "images": "broken",
        "autocast": "broken",
        "scales": "open",
        "clips": "open",
        "skips": "open",
        "resumes": "open",
        "learns": "open",
        "loss": "holds",
    }
    said = capsys.readouterr().out
    assert max(map(len, said.splitlines())) <= 100
    assert one_line(said).endswith(
        "In step 1 a weight of shape (8, 8, 3, 3) has strides (72, 9, 3, 1), channels_last has (72, 1, 24, 8): "
        "model.to(device, memory_format=torch.channels_last). Then: TODO 2 and TODO 3."
    )


def test_starter_says_the_same_as_the_solution_where_there_is_nothing_to_do():
    """Doing the TODOs one by one ends at the solution: the starter has no other differences."""
    lines = {name: (WORKSPACE / name / "amp.py").read_text().splitlines() for name in ("exercises", "solutions")}
    body = {name: text[text.index("def train(") :] for name, text in lines.items()}
    new = [line for line in body["exercises"] if line not in body["solutions"]]
    todos = [line.strip() for line in new if "TODO" in line]
    assert [int(line.split()[2].rstrip(":")) for line in todos] == [1, 4, 7, 2, 3, 4, 5, 6, 7]
    assert len(new) - len(todos) == 6


MISTAKES = {
    "clip before unscale": (
        [(UNSCALE + CLIP, CLIP + UNSCALE)],
        "clips",
        "in step 1 the optimizer got gradients with a norm of 1.5e-06, not 0.1, 65,536 times too small: "
        "first scaler.unscale_(optimizer), then clip",
    ),
    "never unscaled": (
        [(UNSCALE, "")],
        "clips",
        "a norm of 1.5e-06, not 0.1, 65,536 times too small: first scaler.unscale_(optimizer), then clip",
    ),
    "step without update": (
        [(UPDATE, "")],
        "runs",
        "RuntimeError: unscale_() is being called after step(); scaler.update() ends each step",
    ),
    "step without unscale and update": (
        [(UPDATE, ""), (UNSCALE, "")],
        "runs",
        "RuntimeError: step() has already been called since the last update(); scaler.update() ends each step",
    ),
    "scale held": (
        [("scaler.update()", "scaler.update(65536.0)")],
        "skips",
        "in step 3 a gradient overflowed, and the scale is still 65,536 after it: scaler.update() ends each step",
    ),
    "autocast around backward": (
        [(FORWARD + BACKWARD, FORWARD.replace("            opt", "                opt") + "    " + BACKWARD)],
        "autocast",
        "in step 1 autocast was still on while backward ran: end its with block after the loss",
    ),
    "no autocast": (
        [("            with torch.autocast(device.type, dtype):\n    ", "")],
        "autocast",
        "in step 1 the first convolution computed in float32, but dtype is float16: put model and loss under",
    ),
    "autocast for cuda": (
        [("torch.autocast(device.type, dtype)", 'torch.autocast("cuda", dtype)')],
        "autocast",
        "computed in float32, but dtype is float16: autocast is on for cuda, and this device is cpu",
    ),
    "autocast without dtype": (
        [("torch.autocast(device.type, dtype)", "torch.autocast(device.type)")],
        "autocast",
        "in step 1 the first convolution computed in bfloat16, but dtype is float16: give dtype to torch.autocast",
    ),
    "autocast with a dtype of its own": (
        [("torch.autocast(device.type, dtype)", "torch.autocast(device.type, torch.float16)")],
        "autocast",
        "in step 1 in bfloat16 the first convolution computed in float16, but dtype is bfloat16",
    ),
    "model.half()": (
        [(f"{TO_MODEL}\n", f"{TO_MODEL}.to(dtype)\n")],
        "runs",
        "ValueError: Attempting to unscale FP16 gradients; leave the model in float32, autocast computes with a copy",
    ),
    "model.half() without a scaler": (
        [(f"{TO_MODEL}\n", f"{TO_MODEL}.to(dtype)\n"), *WITHOUT_SCALER],
        "autocast",
        "in step 1 the weights are float16, in which small updates are lost: leave the model in float32",
    ),
    "weights not channels_last": (
        [(TO_MODEL, "model.to(device)")],
        "weights",
        "in step 1 a weight of shape (8, 8, 3, 3) has strides (72, 9, 3, 1), channels_last has (72, 1, 24, 8)",
    ),
    "weights lose channels_last on the way": (
        [(LOAD, f"{LOAD}        model.to(memory_format=torch.contiguous_format)\n")],
        "weights",
        "in step 1 after resuming a weight of shape (8, 8, 3, 3) has strides (72, 9, 3, 1)",
    ),
    "images not channels_last": (
        [(TO_IMAGES, "x, y = x.to(device), y.to(device)")],
        "images",
        "in step 1 a batch of shape (8, 3, 8, 8) has strides (192, 64, 8, 1), channels_last has (192, 1, 24, 3): x = ",
    ),
    "images permuted": (
        [(TO_IMAGES, "x, y = x.permute(0, 2, 3, 1), y.to(device)")],
        "runs",
        "to have 3 channels, but got 8 channels instead; channels_last is about strides, the shape stays (N, C, H, W)",
    ),
    "float16 without a scaler": (
        WITHOUT_SCALER,
        "scales",
        "in step 1 26% of all gradients became 0, which in float32 they are not: "
        "they are too small for float16, scale the loss with torch.amp.GradScaler",
    ),
    "scaler never enabled": (
        [("enabled=dtype == torch.float16", "enabled=False")],
        "scales",
        "% of all gradients became 0, which in float32 they are not: the GradScaler is off, and float16 needs it",
    ),
    "scaler for cuda": (
        [("GradScaler(device.type, ", "GradScaler(")],
        "scales",
        "% of all gradients became 0, *: the GradScaler is for cuda and stays off on cpu, make it for device.type",
    ),
    "scale too small": (
        [("GradScaler(device.type, ", "GradScaler(device.type, 2.0, ")],
        "scales",
        "% of all gradients became 0, *: the loss was multiplied by 2 only",
    ),
    "loss not scaled": (
        [("scaler.scale(loss).backward()", "loss.backward()")],
        "runs",
        "your script did not use scaler.scale(loss or outputs) earlier in the iteration",
    ),
    "optimizer.step instead of scaler.step": (
        [("scaler.step(optimizer)", "optimizer.step()")],
        "skips",
        "in step 3 a gradient overflowed and the optimizer took it, so 853 of 853 weights are no longer finite: "
        "scaler.step(optimizer) leaves it out",
    ),
    "no step": (
        [(STEP, "")],
        "skips",
        "in step 1 all gradients were finite, but the optimizer was stepped 0 times",
    ),
    "two steps": (
        [(STEP, f"{STEP}            optimizer.step()\n")],
        "skips",
        "in step 1 all gradients were finite, but the optimizer was stepped 2 times",
    ),
    "not clipped": (
        [(CLIP, "")],
        "clips",
        "in step 1 the optimizer got gradients with a norm of *, not 0.1: clip them to max_norm",
    ),
    "zero_grad missing": (
        [("            optimizer.zero_grad()\n", "")],
        "clips",
        "when backward began in step 2, the gradients of the step before were still there",
    ),
    "scaler neither saved nor loaded": (
        [(KEEP, "}"), (LOAD, "")],
        "resumes",
        "the scale was 32,768 when the first training ended, and 65,536 after resuming: "
        "save scaler.state_dict() as well, and load it",
    ),
    "scaler not saved": (
        [(KEEP, "}")],
        "runs",
        "KeyError: 'scaler'; the checkpoint has no such key, so save scaler.state_dict() as well",
    ),
    "scaler not loaded": (
        [(LOAD, "")],
        "resumes",
        "and 65,536 after resuming, though the checkpoint has the right one: call scaler.load_state_dict",
    ),
    "scaler saved too early": (
        [("    loader = ", "    early = scaler.state_dict()\n    loader = "), (KEEP, ', "scaler": early}')],
        "resumes",
        "and 65,536 after resuming, as in the checkpoint: ask for scaler.state_dict() after the last step",
    ),
    "model not loaded": (
        [('        model.load_state_dict(state["model"])\n', "")],
        "resumes",
        "after resuming, the weights are not those of the end of the first training",
    ),
    "nothing saved": (
        [("    torch.save(state, checkpoint)\n", "")],
        "resumes",
        "nobody wrote the file checkpoint",
    ),
    "optimizer not loaded": (
        [('        optimizer.load_state_dict(state["optimizer"])\n', "")],
        "learns",
        "the weights end *% away from where float32 takes them, as a part of the whole way",
    ),
    "learning rate doubled": (
        [("lr=lr", "lr=2 * lr")],
        "learns",
        "the weights end *% away from where float32 takes them",
    ),
    "scaled loss returned": (
        [("total + loss.item()", "total + scaler.scale(loss).item()")],
        "loss",
        "train returned *, but the mean loss of a sample in the last epoch is *: add up the loss before it is scaled",
    ),
    "loss of a batch returned": (
        [("loss.item() * len(x)", "loss.item()")],
        "loss",
        "train returned *, but the mean loss of a sample in the last epoch is *: weight each batch by its samples",
    ),
}


@pytest.mark.parametrize("mistake", MISTAKES)
def test_planted_mistake_is_named_first(mistake, tmp_path):
    edits, requirement, phrase = MISTAKES[mistake]
    file = edited(tmp_path, *edits)
    result = check("amp", file=file)
    assert_named(result, requirement, phrase, may_be_open=WAIT_FOR.get(requirement, ()))


def test_line_of_a_missing_update_is_named(tmp_path):
    file = edited(tmp_path, (UPDATE, ""))
    result = check("amp", file=file)
    assert_says(result.mistakes[0], f"mine.py, line {line_of(file, 'scaler.unscale_')}")


def test_two_mistakes_are_told_in_the_order_of_mending(tmp_path):
    result = check("amp", file=edited(tmp_path, (TO_IMAGES, "x, y = x.to(device), y.to(device)"), (LOAD, "")))
    assert [one.name for one in result.broken] == ["images", "resumes"]
    assert one_line(str(result)).endswith("Then: TODO 7.")


def no_number(job: Job) -> None:
    job.result.last("trained")[0]["first"].update(returned=None, returned_type="NoneType")


def never_called(job: Job) -> None:
    job.result.last("trained")[0]["resumed"]["steps"] = []


def no_backward(job: Job) -> None:
    for step in job.result.last("trained")[0]["first"]["steps"]:
        step["vanished"] = None


def unclear(job: Job) -> None:
    job.result.last("trained")[0]["resumed"]["steps"][1].update(norm=3.0, off=4.0)


ALTERED = {
    no_number: ("loss", "train returned NoneType, but the mean loss of a sample in the last epoch is "),
    never_called: ("runs", "the model was never called after resuming, so it was not trained"),
    no_backward: ("scales", "step 1 did not go backward from the loss"),
    unclear: (
        "clips",
        "in step 2 after resuming the optimizer got gradients with a norm of 3, not *, "
        "and 400% away from those of float32: unscale once, then clip once",
    ),
}


@pytest.mark.parametrize("alter", ALTERED, ids=lambda alter: alter.__name__)
def test_altered_record_of_the_solution_is_named(alter, solved):
    """The same requirements on what a rank would report after rarer mistakes."""
    requirement, phrase = ALTERED[alter]
    broken = broken_when("amp", solved, alter)
    assert broken[0].name == requirement
    assert_says(broken[0].mistake, phrase)


RIGHT = {
    "in the model's own forward, clipped in two calls": [
        (
            f"    {TO_MODEL}\n",
            "    model.to(device).to(memory_format=torch.channels_last)\n"
            "    model.forward = torch.autocast(device_type=device.type, dtype=dtype)(model.forward)\n",
        ),
        (TO_IMAGES, "x, y = x.to(device).contiguous(memory_format=torch.channels_last), y.to(device)"),
        (FORWARD, "            optimizer.zero_grad()\n            loss = cross_entropy(model(x).float(), y)\n"),
        (
            CLIP,
            "            norm = torch.nn.utils.get_total_norm([p.grad for p in model.parameters()])\n"
            "            torch.nn.utils.clip_grads_with_norm_(model.parameters(), max_norm, norm)\n",
        ),
        ("return total / count", "return torch.tensor(total / count)"),
    ],
    "scaler always on, and a scale of its own": [(SCALER, "torch.amp.GradScaler(device.type, 2.0**20)")],
    "scaled by hand": [
        (SCALER, "2.0**12 if dtype == torch.float16 else 1.0"),
        (LOAD, '        scaler = state["scale"]\n'),
        (KEEP, ', "scale": scaler}'),
        ("scaler.scale(loss).backward()", "(loss * scaler).backward()"),
        (UNSCALE, "            for p in model.parameters():\n                p.grad /= scaler\n"),
        (CLIP, CLIP.replace("clip_", "norm = clip_")),
        (
            STEP + UPDATE,
            "            if norm.isfinite():\n"
            "                optimizer.step()\n"
            "            else:\n"
            "                scaler /= 2\n",
        ),
    ],
}


@pytest.mark.parametrize("way", RIGHT)
def test_other_right_ways_hold(way, tmp_path):
    result = check("amp", file=edited(tmp_path, *RIGHT[way]))
    assert result.ok, result.mistakes


@pytest.mark.parametrize("place", ["exercises", "solutions"])
def test_file_trains_by_itself_and_goes_on(place):
    """float32 and float16 alike: the second call begins with what the first one learned."""
    result = run(WORKSPACE / place / "amp.py", hosts="node1:1", timeout=120, quiet=True)
    first, second = [float(line.rpartition(" ")[2]) for _, line in result.output if line.startswith("loss in")]
    assert 0.3 < second < first < 2.0


def test_requirements_do_without_torch():
    code = "import sys, distlab.lessons.precision.check.requirements; assert 'torch' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60, cwd=Path(__file__).parent)
