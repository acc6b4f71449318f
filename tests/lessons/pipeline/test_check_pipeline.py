"""The exercise pipeline: the solution holds, the starter is told where to start, planted mistakes are named."""

import functools
import itertools
import time

import exercise
import pytest
from distlab.checks import CheckResult, check
from distlab.checks.engine import Job
from distlab.launch import run
from distlab.lessons.pipeline.check.staging import best_cost, split_fault
from distlab.runs import WORKSPACE
from exercise import assert_named, assert_says, broken_when, line_of, one_line, states
from running import TWO_BY_TWO

edited = functools.partial(exercise.edited, "pipeline")
FOLDERS = ("exercises", "solutions")
REQUIREMENTS = ["runs", "split", "layers", "stages", "schedule", "optimizer", "step", "trains", "loss"]

BEST = "    best = min(itertools.combinations(range(1, len(costs)), stages - 1), key=slowest)\n"
ANSWER = "    return [end - first for first, end in ends(best)]\n"
PART = "model[first : first + layers[me.rank]]"
STAGE = "PipelineStage(part, me.rank, me.world_size, me.message_device)"
SCHEDULE = "Schedule1F1B(stage, n_microbatches=16, loss_fn=cross_entropy)"
IMPORT = "from torch.distributed.pipelining import PipelineStage, Schedule1F1B\n"
GIVES = "        pixels = [x / 255] if stage.is_first else []\n"
TARGETS = '        targets = {"target": y, "losses": losses} if stage.is_last else {}\n'
STEP = "        schedule.step(*pixels, **targets)\n"
BROADCAST = "        dist.broadcast(mean, src=me.world_size - 1)\n"


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


def schedule(name: str, microbatches: int) -> list[tuple[str, str]]:
    """Another schedule in place of 1F1B."""
    return [
        (IMPORT, IMPORT.replace("Schedule1F1B", name)),
        (SCHEDULE, f"{name}(stage, n_microbatches={microbatches}, loss_fn=cross_entropy)"),
    ]


def test_file_runs_as_a_script_and_trains_as_the_starter_does():
    """The stages on four ranks lose what the whole model on each of them does."""
    said = [run(WORKSPACE / f"{folder}/pipeline.py", hosts=TWO_BY_TWO, quiet=True) for folder in FOLDERS]
    each = [[float(text.split()[-1]) for _, text in one.output if text.startswith("epoch")] for one in said]
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


MISTAKES = {
    "batch not divisible": (
        [("n_microbatches=16", "n_microbatches=12")],
        "schedule",
        "a batch of 32 is not divisible by 12 microbatches: some would have 3 samples and some 2, "
        "but stages make room for one size. It can be 1, 2, 4, 8, 16 or 32",
    ),
    "targets to the first stage": (
        [(TARGETS, '        targets = {"target": y, "losses": losses} if stage.is_first else {}\n')],
        "step",
        "rank 0, which has stage 0 of 4, gives targets to step: the loss is on the last stage, which rank 3 has",
    ),
    "loss function on the last stage only": (
        [("loss_fn=cross_entropy)", "loss_fn=cross_entropy if stage.is_last else None)")],
        "schedule",
        "the schedule of ranks 0, 1 and 2 has no loss_fn, so it does forwards only: give it on every rank",
    ),
    "loss of the wrong rank": (
        [(BROADCAST, "        dist.broadcast(mean, src=0)\n")],
        "loss",
        "rank 3 returned a loss of 0.000 for batch 0, but the mean is *: "
        "it is the mean over all microbatches, which only rank 3 knows, with the last stage",
    ),
    "stage on the first GPU": (
        [(STAGE, STAGE.replace("me.message_device", 'torch.device("cuda:0")'))],
        "stages",
        "rank 0 puts stage 0 on cuda:0, while its messages come from cpu: take the device from me.message_device",
    ),
    "stage on the CPU": (
        [(STAGE, STAGE.replace("me.message_device", 'torch.device("cpu")'))],
        "stages",
        "rank 0 puts stage 0 on cpu, even where its device is not cpu: take the device from me.message_device",
    ),
    "layers left on the CPU": (
        [(f"{PART}.to(me.message_device)", PART)],
        "stages",
        "rank 0 makes stage 0 for its own device, but leaves the layers on cpu: move them to me.message_device",
    ),
    "stage counted within the host": (
        [
            (STAGE, STAGE.replace("me.rank", "me.local_rank")),
            (TARGETS, TARGETS.replace("stage.is_last", "me.rank == me.world_size - 1")),
        ],
        "stages",
        "ranks 0 and 2 both made stage 0, and nobody made stages 2 and 3: the index of a stage is its place",
    ),
    "stages backwards": (
        [(STAGE, STAGE.replace("me.rank", "me.world_size - 1 - me.rank"))],
        "stages",
        "rank 0 made stage 3, but Schedule1F1B looks for it on rank 3",
    ),
    "equally many layers": (
        [
            (BEST, "    each = len(costs) // stages\n"),
            (ANSWER, "    return [each] * (stages - 1) + [len(costs) - each * (stages - 1)]\n"),
        ],
        "split",
        "with costs [2, 2, 2, 9, 2, 2, 2, 2] and 4 stages split gave [2, 2, 2, 2]: "
        "its slowest stage, stage 1, costs 11, but 9 is possible",
    ),
    "last layer lost": (
        [("(0, *cuts, len(costs))", "(0, *cuts, len(costs) - (len(costs) > 6))")],
        "split",
        "with costs [1, 1, 1, 1, 1, 1, 1, 1] and 4 stages split gave [*]: "
        "that is 7 layers, but there are 8, so 1 layer would be lost",
    ),
    "split not asked": (
        [("layers = split(costs, me.world_size)", "layers = [len(costs) // me.world_size] * me.world_size")],
        "layers",
        "the 4 stages cost [1392, 1296, 432, 348]: its slowest stage, stage 0, costs 1392, but 1152 is possible",
    ),
    "a layer taken twice": (
        [(PART, "model[max(0, first - 1) : first + layers[me.rank]]")],
        "layers",
        "layer 0 is on ranks 0 and 1, and would be taken more than once",
    ),
    "a layer lost": (
        [(PART, "model[first + (me.rank == 2) : first + layers[me.rank]]")],
        "layers",
        "layer 3 of 12 is on no rank: the layers of a stage begin where those of the stage before end",
    ),
    "the whole model in each stage": (
        [(PART, "model")],
        "layers",
        "every rank has all 12 layers in its stage: keep those of one stage",
    ),
    "batch edited in place": (
        [("[x / 255]", "[x.div_(255)]")],
        "step",
        "rank 0 changed x of batch 0 in place: its largest value was 255 and is *",
    ),
    "pixels as they are": (
        [("[x / 255]", "[x]")],
        "step",
        "rank 0 gives pixels up to 255 to step: the model takes them from 0 to 1, x / 255",
    ),
    "a middle stage is given the input": (
        [("if stage.is_first else []", "if not stage.is_last else []")],
        "step",
        "rank 1, which has stage 1 of 4, gives an input to step: it takes what stage 0 sends",
    ),
    "gradients not divided": (
        [("loss_fn=cross_entropy)", "loss_fn=cross_entropy, scale_grads=False)")],
        "trains",
        "the first update of rank 0 is 16 times as long as that of one process: "
        "gradients of 16 microbatches were added up",
    ),
    "loss summed over samples": (
        [("loss_fn=cross_entropy)", 'loss_fn=lambda out, y: cross_entropy(out, y, reduction="sum"))')],
        "trains",
        "the first update of rank 0 is 2 times as long as that of one process: "
        "the loss of a microbatch is the sum over its 2 samples, not their mean",
    ),
    "optimizer over the whole model": (
        [("SGD(part.parameters()", "SGD(model.parameters()")],
        "optimizer",
        "the optimizer of rank 0 holds 24 parameters, but only 2 of them are in its stage: "
        "the other 22 have no gradient here",
    ),
    "gradients pile up": (
        [("        optimizer.zero_grad()\n", "")],
        "trains",
        "the weights of rank 0 are those of a process that adds each step's gradients to those before: "
        "optimizer.zero_grad() is missing",
    ),
    "never updated": (
        [("        optimizer.step()\n", "")],
        "trains",
        "the weights of rank 0 never changed: optimizer.step() follows schedule.step",
    ),
    "too few microbatches": (
        [("n_microbatches=16", "n_microbatches=8")],
        "schedule",
        "Schedule1F1B with 8 microbatches leaves ranks idle for 27% of a step, and at most 20% is asked for",
    ),
    "all activations kept": (
        schedule("ScheduleGPipe", 16),
        "schedule",
        "ScheduleGPipe with 16 microbatches lets rank 0 keep activations of 32 samples at once, "
        "16 microbatches of 2, and at most 8 is asked for",
    ),
    "ranks with different numbers of microbatches": (
        [("n_microbatches=16", "n_microbatches=16 * (1 + me.rank % 2)")],
        "schedule",
        "rank 0 cuts the batch into 16 microbatches, but rank 1 cuts the batch into 32 microbatches",
    ),
    "loss not handed on": (
        [(BROADCAST, "")],
        "loss",
        "rank 0 returned a loss of 0.000 for batch 0, but the mean is *: the loss is on the last stage, "
        "so rank 3 has to hand it to the others, with dist.broadcast",
    ),
    "losses added up": (
        [("torch.stack(losses).detach().mean()", "torch.stack(losses).detach().sum()")],
        "loss",
        "rank 3 returned a loss of * for batch 0, but the mean is *: that is the sum over 16 microbatches",
    ),
}


@pytest.mark.parametrize("mistake", MISTAKES)
def test_planted_mistake_is_named_first(mistake, tmp_path):
    edits, requirement, phrase = MISTAKES[mistake]
    may_be_open = set(REQUIREMENTS[REQUIREMENTS.index(requirement) + 1 :])
    if requirement == "step":
        # Nobody takes a step that would never end.
        may_be_open |= {"schedule", "optimizer"}
    assert_named(check("pipeline", file=edited(tmp_path, *edits)), requirement, phrase, may_be_open)


def of(job: Job, event: str, rank: int) -> dict:
    return job.result.last(event)[rank]


def targets_to_every_stage(job: Job) -> None:
    for rank in range(4):
        of(job, "step", rank)["targets"] = True


def no_targets(job: Job) -> None:
    of(job, "step", 3)["targets"] = False


def input_from_the_last_rank(job: Job) -> None:
    of(job, "step", 0)["inputs"], of(job, "step", 3)["inputs"] = False, True


def no_loss_function(job: Job) -> None:
    for rank in range(3):
        of(job, "step", rank)["loss"] = False


def other_number_of_stages(job: Job) -> None:
    of(job, "step", 1)["stages"][0]["count"] = 8


def layers_out_of_order(job: Job) -> None:
    first, second = (of(job, "step", rank)["stages"][0] for rank in (1, 2))
    first["layers"], second["layers"] = second["layers"], first["layers"]


def another_schedule_on_one_rank(job: Job) -> None:
    of(job, "step", 2)["schedule"] = "ScheduleGPipe"


def first_update(times: float):
    def alter(job: Job) -> None:
        for rank in range(4):
            of(job, "trained", rank).update(times=times, straight=True, off=[0.1] * 4)

    alter.__name__ = f"first_update_{times:g}_times"
    return alter


def diverged(job: Job) -> None:
    of(job, "trained", 2).update(times=None, straight=False, moved=None, piled=None, off=[None] * 4)


def wrong_from_the_third_step(job: Job) -> None:
    of(job, "trained", 1).update(off=[0.0, 0.0, 0.02, 0.03], piled=0.5)


def one_step_less(job: Job) -> None:
    for rank in range(4):
        of(job, "trained", rank)["steps"] = 3


def part_of_a_stage_updated(job: Job) -> None:
    of(job, "trained", 3)["optimizer"].update(holds=2, own=2)


def targets_edited(job: Job) -> None:
    of(job, "trained", 3)["changed"] = [{"batch": 1, "what": "y", "before": 4.0, "now": 1.0}]


def nothing_returned(job: Job) -> None:
    of(job, "trained", 3).update(returned=None, returned_type="NoneType")


def last_loss_alone(job: Job) -> None:
    of(job, "trained", 3)["returned"] = of(job, "trained", 3)["returned"][-1:]


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
    assert [one.name for one in broken] == [requirement], broken
    assert_says(broken[0].mistake, phrase)


def test_best_cost_is_that_of_all_splits():
    costs = [3.0, 1.0, 4.0, 1.0, 5.0, 9.0, 2.0]
    for stages in range(1, len(costs) + 1):
        cuts = itertools.combinations(range(1, len(costs)), stages - 1)
        ways = [list(itertools.pairwise((0, *one, len(costs)))) for one in cuts]
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


BROKEN_OFF = {
    "only the first rank takes a step": (
        [(STEP, "        if stage.is_first:\n            schedule.step(*pixels)\n")],
        "rank 3 on node2: RuntimeError: stack expects a non-empty TensorList; in a pipeline only the last stage has "
        "losses; rank 0 waited in schedule.step, which ranks 1, 2 and 3 never called: every rank calls it in every",
        "torch.stack(losses)",
    ),
    "losses of the first stage": (
        [
            (
                "torch.stack(losses).detach().mean() if stage.is_last",
                "torch.stack(losses).detach().mean() if me.rank < 1",
            )
        ],
        "rank 0 on node1: RuntimeError: stack expects a non-empty TensorList; in a pipeline only the last stage",
        "torch.stack(losses)",
    ),
    "a GPU that is not there": (
        [(f"{PART}.to(me.message_device)", f'{PART}.to("cuda")')],
        "every rank: RuntimeError: Found no NVIDIA driver*; this check runs on CPUs; the rank knows its device",
        'to("cuda")',
    ),
    "fewer microbatches than stages": (
        [("n_microbatches=16", "n_microbatches=2")],
        "every rank: ValueError: Number of microbatches (2) must be greater than or equal to the number of stages (4)",
        "Schedule1F1B(stage",
    ),
    "a stage edits what it was sent": (
        [(STEP, f"        part.register_forward_pre_hook(lambda _, sent: (sent[0].mul_(1),))\n{STEP}")],
        "RuntimeError: a leaf Variable that requires grad is being used in an in-place operation; "
        "what a stage is sent is not its own to change",
        "sent[0].mul_(1)",
    ),
    "no stage yet": (
        [(f"\n    stage = {STAGE}\n", ""), (f"    schedule = {SCHEDULE}\n", "    raise NotImplementedError\n")],
        "raise NotImplementedError is still to be replaced by your code; no rank has called schedule.step yet, "
        "and no stage can train without it: go on with TODO 3, PipelineStage",
        "raise NotImplementedError",
    ),
    "function renamed": (
        [("def train(", "def learn("), ("losses = train(", "losses = learn(")],
        "mine.py has no function train(me, model, costs, batches, lr)",
        None,
    ),
}


@pytest.mark.parametrize("fault", BROKEN_OFF)
def test_file_that_does_not_run_to_its_end(fault, tmp_path):
    edits, phrase, code = BROKEN_OFF[fault]
    file = edited(tmp_path, *edits)
    result = check("pipeline", file=file)
    assert [one.name for one in result.broken] == ["runs"]
    assert_says(result.mistakes[0], phrase)
    if code:
        assert f"mine.py, line {line_of(file, code)}" in result.mistakes[0]


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
