"""The exercise pipeline: the solution holds, the starter is told where to start, planted mistakes are named."""

import functools
import itertools
import time

import exercise
import pytest
from distlab.checks import CheckResult, check
from distlab.checks.engine import Observed
from distlab.launch import run
from distlab.lessons.pipeline.check.mistakes import BROADCAST, IMPORT, PART, SCHEDULE, STAGE, STEP, TARGETS, schedule
from distlab.lessons.pipeline.check.staging import best_cost, split_fault
from distlab.runs import WORKSPACE
from exercise import assert_says, broken_when, line_of, one_line, states
from running import TWO_BY_TWO

edited = functools.partial(exercise.edited, "pipeline")
FOLDERS = ("exercises", "solutions")
REQUIREMENTS = ["runs", "split", "layers", "stages", "schedule", "optimizer", "step", "trains", "loss"]

GIVES = "        pixels = [x / 255] if stage.is_first else []\n"


@pytest.fixture(scope="module")
def solved() -> CheckResult:
    return check("pipeline", file="solutions/pipeline.py")


def test_solution_holds(solved):
    assert states(solved) == dict.fromkeys(REQUIREMENTS, "holds")
    assert str(solved).endswith("\n\nAll 9 hold: this exercise is done.")
    # Not one part was left out on any rank.
    for event in ("split", "stage", "step", "device", "trained"):
        assert sorted(solved.run.last(event)) == [0, 1, 2, 3], event


def test_starter_is_told_where_to_start(capsys):
    result = check("pipeline")
    assert states(result) == dict.fromkeys(REQUIREMENTS, "open") | {"runs": "holds", "split": "broken"}
    said = capsys.readouterr().out
    assert max(map(len, said.splitlines())) <= 100
    assert one_line(said).endswith(
        "With costs [1, 1, 1, 1, 1, 1, 1, 1] and 4 stages split gave [8, 0, 0, 0]: "
        "stages 1, 2 and 3 would have no layer, and each needs one or more. Start with TODO 1."
    )


def test_file_runs_as_a_script_and_trains_as_the_starter_does():
    """The stages on four ranks lose what the whole model on each of them does."""
    said = [run(WORKSPACE / f"{folder}/pipeline.py", hosts=TWO_BY_TWO, quiet=True) for folder in FOLDERS]
    each = [[float(text.split()[-1]) for _, text in run.output if text.startswith("epoch")] for run in said]
    assert each[0] == pytest.approx(each[1], abs=0.01)
    first, second = each[0]
    assert second < first - 0.3


BY_AND_BY = {
    # The last TODO that is done, and where the check leads on.
    "TODO 1": "no rank made a PipelineStage, so each trained all 12 layers by itself",
    "TODO 2": "no rank has called schedule.step yet, and no stage can train without it: go on with TODO 3, Pipeline",
    "TODO 3": "no rank has called schedule.step yet, and no stage can train without it: go on with TODO 4 to TODO 6",
}


@pytest.mark.parametrize("done", BY_AND_BY)
def test_starter_that_is_done_by_and_by(done, tmp_path):
    """The solution, whose later TODOs are those of the starter."""
    loop = line_between("exercises", "        # TODO 6", "    return means")
    edits = [(line_between("solutions", "        losses: list", "    return means"), loop)]
    edits.append((f"    schedule = {SCHEDULE}\n", ""))
    if done < "TODO 3":
        edits.append((f"    stage = {STAGE}\n", ""))
    if done < "TODO 2":
        edits.append((f"{PART}.to", "model.to"))
    result = check("pipeline", file=edited(tmp_path, *edits))
    assert_says(result.mistakes[0], BY_AND_BY[done])


def line_between(folder: str, start: str, end: str) -> str:
    """A piece of a file."""
    text = (WORKSPACE / folder / "pipeline.py").read_text()
    return text[text.index(start) : text.index(end)]


def of(observed: Observed, event: str, rank: int) -> dict:
    return observed.result.last(event)[rank]


def targets_to_every_stage(observed: Observed) -> None:
    for rank in range(4):
        of(observed, "step", rank)["targets"] = True


def no_targets(observed: Observed) -> None:
    of(observed, "step", 3)["targets"] = False


def input_from_the_last_rank(observed: Observed) -> None:
    of(observed, "step", 0)["inputs"], of(observed, "step", 3)["inputs"] = False, True


def no_loss_function(observed: Observed) -> None:
    for rank in range(3):
        of(observed, "step", rank)["loss"] = False


def other_number_of_stages(observed: Observed) -> None:
    of(observed, "step", 1)["stages"][0]["count"] = 8


def layers_out_of_order(observed: Observed) -> None:
    first, second = (of(observed, "step", rank)["stages"][0] for rank in (1, 2))
    first["layers"], second["layers"] = second["layers"], first["layers"]


def another_schedule_on_one_rank(observed: Observed) -> None:
    of(observed, "step", 2)["schedule"] = "ScheduleGPipe"


def first_update(times: float):
    def alter(observed: Observed) -> None:
        for rank in range(4):
            of(observed, "trained", rank).update(times=times, straight=True, off=[0.1] * 4)

    alter.__name__ = f"first_update_{times:g}_times"
    return alter


def diverged(observed: Observed) -> None:
    of(observed, "trained", 2).update(times=None, straight=False, moved=None, piled=None, off=[None] * 4)


def wrong_from_the_third_step(observed: Observed) -> None:
    of(observed, "trained", 1).update(off=[0.0, 0.0, 0.02, 0.03], piled=0.5)


def one_step_less(observed: Observed) -> None:
    for rank in range(4):
        of(observed, "trained", rank)["steps"] = 3


def part_of_a_stage_updated(observed: Observed) -> None:
    of(observed, "trained", 3)["optimizer"].update(holds=2, own=2)


def targets_edited(observed: Observed) -> None:
    of(observed, "trained", 3)["changed"] = [{"batch": 1, "what": "y", "before": 4.0, "now": 1.0}]


def nothing_returned(observed: Observed) -> None:
    of(observed, "trained", 3).update(returned=None, returned_type="NoneType")


def last_loss_alone(observed: Observed) -> None:
    of(observed, "trained", 3)["returned"] = of(observed, "trained", 3)["returned"][-1:]


ALTERED = {
    targets_to_every_stage: ("step", "rank 0, which has stage 0 of 4, gives targets to step: the loss is on the last"),
    no_targets: ("step", "rank 3, which has stage 3 of 4, gives no target to step: the loss is on the last stage"),
    input_from_the_last_rank: ("step", "rank 0, which has stage 0 of 4, gives no input to step: the first stage takes"),
    no_loss_function: ("schedule", "the schedule of ranks 0, 1 and 2 has no loss_fn, so it does forwards only"),
    other_number_of_stages: ("stages", "rank 1 says that there are 8 stages, but the ranks have 4 in all"),
    layers_out_of_order: ("stages", "stage 2 begins with layer 1, but stage 1 ends with layer 4"),
    another_schedule_on_one_rank: (
        "schedule",
        "rank 0 follows Schedule1F1B, but rank 2 follows ScheduleGPipe: all ranks need the same schedule",
    ),
    first_update(32): (
        "trains",
        "is 32 times as long as that of one process: gradients of all 32 samples were added up",
    ),
    first_update(1 / 16): ("trains", "0.0625 times as long as that of one process: gradients were divided by 16 micro"),
    first_update(3): ("trains", "3 times as long as that of one process: the loss is to be the mean over the batch"),
    diverged: ("trains", "after 1 of 4 steps the weights of rank 2 differ without limit (they are no longer finite)"),
    wrong_from_the_third_step: ("trains", "after 3 of 4 steps the weights of rank 1 differ by up to 0.02 from those"),
    one_step_less: ("trains", "rank 0 took 3 steps for 4 batches: each batch is one step"),
    part_of_a_stage_updated: (
        "optimizer",
        "the optimizer of rank 3 holds 2 of the 14 parameters of its stage: the others stay as they are",
    ),
    targets_edited: ("step", "rank 3 changed y of batch 1 in place: its largest value was 4 and is 1 now"),
    nothing_returned: ("loss", "rank 3 got NoneType from train, not a list with the mean loss of each batch"),
    last_loss_alone: ("loss", "rank 3 returned 1 losses for 4 batches: one for each batch"),
}


@pytest.mark.parametrize("alter", ALTERED, ids=lambda alter: alter.__name__)
def test_altered_record_of_the_solution_is_named(alter, solved):
    """The same judges on what ranks would report after rarer mistakes."""
    requirement, phrase = ALTERED[alter]
    broken = broken_when("pipeline", solved, alter)
    assert [verdict.name for verdict in broken] == [requirement], broken
    assert_says(broken[0].mistake, phrase)


def test_best_cost_is_that_of_all_splits():
    costs = [3.0, 1.0, 4.0, 1.0, 5.0, 9.0, 2.0]
    for stages in range(1, len(costs) + 1):
        cuts = itertools.combinations(range(1, len(costs)), stages - 1)
        ways = [list(itertools.pairwise((0, *cut, len(costs)))) for cut in cuts]
        slowest = [max(sum(costs[first:end]) for first, end in way) for way in ways]
        assert best_cost(costs, stages) == min(slowest)
        for way, slow in zip(ways, slowest, strict=True):
            fault = split_fault(costs, stages, [end - first for first, end in way])
            assert (fault is None) == (slow == min(slowest))


@pytest.mark.parametrize(
    ("found", "phrase"),
    [
        (None, "gave None: it should be a list"),
        ([2, 2], "gave [2, 2], 2 numbers for 3 stages"),
        ([2, 2, 1], "that is 5 layers, but there are 4, so 1 layer would be taken twice"),
        ([1, 1, 1], "that is 3 layers, but there are 4, so 1 layer would be lost"),
    ],
)
def test_answer_that_is_no_split(found, phrase):
    assert_says(split_fault([1.0, 1.0, 1.0, 1.0], 3, found), phrase)


TRACED = """\
    starts = [sum(layers[:one]) for one in range(1, me.world_size)]
    whole = pipeline(model, (torch.zeros(1, 20),), split_spec={str(one): SplitPoint.BEGINNING for one in starts})
    stage = whole.build_stage(me.rank, me.message_device)
    part = stage.submod
"""
BUILD = f"""\
    first = sum(layers[: me.rank])
    part = {PART}.to(me.message_device)

    stage = {STAGE}
"""


def two_on_each_rank(second: str, name: str, microbatches: int, last: str) -> list[tuple[str, str]]:
    """Two stages on each rank; `second` is the index of the later one, `last` the rank of the last of all."""
    build = f"""\
    ends = list(itertools.accumulate(layers))
    own = [me.rank, {second}]
    part = nn.ModuleList(model[ends[one] - layers[one] : ends[one]] for one in own).to(me.message_device)
    stage = [PipelineStage(*pair, len(layers), me.message_device) for pair in zip(part, own, strict=True)]
"""
    return [
        *schedule(name, microbatches),
        ("split(costs, me.world_size)", "split(costs, 2 * me.world_size)"),
        (BUILD, build),
        (GIVES, GIVES.replace("stage.is_first", "stage[0].is_first")),
        (TARGETS, TARGETS.replace("stage.is_last", "stage[1].is_last")),
        (".mean() if stage.is_last", ".mean() if stage[1].is_last"),
        (BROADCAST, BROADCAST.replace("me.world_size - 1", last)),
    ]


RIGHT = {
    "interleaved": two_on_each_rank("me.rank + me.world_size", "ScheduleInterleaved1F1B", 32, "me.world_size - 1"),
    "zero bubble": two_on_each_rank("2 * me.world_size - 1 - me.rank", "ScheduleZBVZeroBubble", 16, "0"),
    "traced, with another split of the same cost": [
        (IMPORT, "from torch.distributed.pipelining import Schedule1F1B, SplitPoint, pipeline\n"),
        (BUILD, TRACED),
        ("key=slowest)", "key=lambda cuts: (slowest(cuts), [-cut for cut in cuts]))"),
        ("n_microbatches=16", "n_microbatches=32"),
    ],
    "cut and updated by hand": [
        (GIVES, '        pixels = {"arg_mbs": [(one,) for one in (x / 255).chunk(16)]} if stage.is_first else {}\n'),
        (TARGETS, '        targets = {"target_mbs": list(y.chunk(16)), "losses": losses} if stage.is_last else {}\n'),
        (STEP, "        schedule.step(**pixels, **targets)\n"),
        ("    optimizer = torch.optim.SGD(part.parameters(), lr=lr)\n", ""),
        ("        optimizer.zero_grad()\n", "        part.zero_grad()\n"),
        (
            "        optimizer.step()\n",
            "        with torch.no_grad():\n"
            "            for one in part.parameters():\n"
            "                one -= lr * one.grad / 16\n",
        ),
        ("loss_fn=cross_entropy)", "loss_fn=cross_entropy, scale_grads=False)"),
        ("means.append(mean.item())", "means.append(mean)"),
    ],
}


@pytest.mark.parametrize("way", RIGHT)
def test_other_right_ways_hold(way, tmp_path):
    result = check("pipeline", file=edited(tmp_path, *RIGHT[way]))
    assert result.ok, result.mistakes


def test_ranks_that_wait_for_a_step_that_others_do_not_take(tmp_path):
    """Rank 2 leaves after the first of the batches; the others wait for its second step."""
    file = edited(tmp_path, (STEP, f"        if me.rank == 2 and means:\n            return means\n{STEP}"))
    started = time.monotonic()
    result = check("pipeline", file=file, timeout=3)
    assert time.monotonic() - started < 15
    assert result.mistakes == [
        "ranks 0, 1 and 3 waited in schedule.step for step 2, which rank 2 never called: "
        "every rank calls it in every step, with or without a batch"
    ]


def test_rank_that_never_comes_back(tmp_path):
    file = edited(tmp_path, (BROADCAST, f"        while me.rank == 1:\n            pass\n{BROADCAST}"))
    result = check("pipeline", file=file, timeout=3)
    said = result.mistakes[0]
    # Whether others already have the loss, and wait in the next step, is gloo's affair.
    assert_says(said, "mine.py: rank* waited at line *, while rank*: all ranks must take the same steps")
    loop = line_of(file, "while me.rank")
    assert f"rank 1 waited at line {loop}, " in said or f"rank 1 waited at line {loop + 1}, " in said
