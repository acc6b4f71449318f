"""The exercise amp: the solution holds, the starter is told where to start, planted mistakes are named."""

import functools

import exercise
import pytest
from distlab.checks import CheckResult, check
from distlab.checks.engine import Observed
from distlab.launch import run
from distlab.lessons.precision.check.mistakes import (
    CLIP,
    FORWARD,
    KEEP,
    LOAD,
    STEP,
    TO_IMAGES,
    TO_MODEL,
    UNSCALE,
    UPDATE,
)
from distlab.runs import WORKSPACE
from exercise import assert_says, broken_when, one_line, states

edited = functools.partial(exercise.edited, "amp")
REQUIREMENTS = ["runs", "weights", "images", "autocast", "scales", "clips", "skips", "resumes", "learns", "loss"]

SCALER = "torch.amp.GradScaler(device.type, enabled=dtype == torch.float16)"


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


def test_two_mistakes_are_told_in_the_order_of_mending(tmp_path):
    result = check("amp", file=edited(tmp_path, (TO_IMAGES, "x, y = x.to(device), y.to(device)"), (LOAD, "")))
    assert [verdict.name for verdict in result.broken] == ["images", "resumes"]
    assert one_line(str(result)).endswith("Then: TODO 7.")


def no_number(observed: Observed) -> None:
    observed.result.last("trained")[0]["first"].update(returned=None, returned_type="NoneType")


def never_called(observed: Observed) -> None:
    observed.result.last("trained")[0]["resumed"]["steps"] = []


def no_backward(observed: Observed) -> None:
    for step in observed.result.last("trained")[0]["first"]["steps"]:
        step["vanished"] = None


def unclear(observed: Observed) -> None:
    observed.result.last("trained")[0]["resumed"]["steps"][1].update(norm=3.0, off=4.0)


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
