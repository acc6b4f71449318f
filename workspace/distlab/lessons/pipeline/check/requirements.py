"""What makes the exercise pipeline right, in the order in which one would mend it."""

import math

import pytest

from distlab.checks.engine import Job, needs
from distlab.checks.result import plural
from distlab.lessons.pipeline.check.staging import (
    device_fault,
    layers_fault,
    schedule_fault,
    split_fault,
    stages_fault,
    step_fault,
)
from distlab.lessons.pipeline.orders import BACKWARD, INPUT, WEIGHTS, Work
from distlab.lessons.pipeline.schedules import bubble, follow, in_flight

# Of a step, and of a batch: what the exercise asks for.
MOST_IDLE, MOST_KEPT = 0.2, 8
# Sums of float32 in another order; a real mistake is a hundred times larger.
CLOSE = 1e-4


@pytest.fixture
def answers(job: Job) -> list[dict]:
    """What `split` answered, up to the first wrong answer."""
    return job.each("split")[0]["answers"]


@pytest.fixture
def costs(answers: list[dict]) -> list[float]:
    """Of the layers of the model that was trained."""
    return answers[-1]["costs"]


@pytest.fixture
def facts(job: Job) -> list[dict]:
    """What each rank was about to do in the last step that it entered, in rank order."""
    return job.each("step")


@pytest.fixture
def ranks(job: Job) -> list[dict]:
    """What each rank saw of its training."""
    return job.each("trained")


def test_runs(job: Job) -> None:
    """the file runs to its end on every rank"""
    if job.trouble is None:
        return
    said = _alone(job)
    if said and not job.each("raised"):
        pytest.fail(said)
    pytest.fail(f"{job.trouble}; {said}" if said else job.trouble)


def _alone(job: Job) -> str | None:
    """Who waits in a step that others do not take."""
    ends = [end.rank for end in job.result.ranks]
    taken = dict.fromkeys(ends, 0) | {one["rank"]: one["number"] + 1 for one in job.each("step")}
    most = max(taken.values())
    if not most:
        if not job.each("split"):
            return None
        left = "TODO 4 to TODO 6, the schedule and its step" if job.each("stage") else "TODO 3, PipelineStage"
        return f"no rank has called schedule.step yet, and no stage can train without it: go on with {left}"
    behind = [rank for rank, count in taken.items() if count < most]
    # A rank that stands still elsewhere is told with its line.
    if not behind or set(behind) & set(job.result.last("stuck")):
        return None
    ahead = [rank for rank in ends if rank not in behind]
    which = "" if most == 1 else f" for step {most}"
    return (
        f"{plural('rank', ahead)} waited in schedule.step{which}, which {plural('rank', behind)} never called: "
        "every rank calls it in every step, with or without a batch"
    )


@needs("runs")
def test_split(answers: list[dict]) -> None:
    """TODO 1: the slowest stage is as quick as it can be"""
    fault = split_fault(**answers[-1])
    if len(answers) == 1 and fault:
        fault += ". Start with TODO 1"
    assert fault is None, fault


@needs("split")
def test_layers(job: Job, facts: list[dict], costs: list[float]) -> None:
    """TODO 2: each layer is in one stage, as split has it"""
    if not facts:
        left = "a PipelineStage was made, but no schedule took a step: go on with TODO 4 to TODO 6"
        none = (
            f"no rank made a PipelineStage, so each trained all {len(costs)} layers by itself: "
            "keep the layers of one stage (TODO 2) and make it a PipelineStage (TODO 3)"
        )
        pytest.fail(left if job.each("stage") else none)
    fault = layers_fault(facts, costs)
    assert fault is None, fault


@needs("layers")
def test_stages(job: Job, facts: list[dict]) -> None:
    """TODO 3: each stage has its own index, on the device of its rank"""
    fault = stages_fault(facts) or device_fault(job.each("device"))
    assert fault is None, fault


@needs("stages")
def test_schedule(facts: list[dict], ranks: list[dict]) -> None:
    """TODO 4: ranks are idle for at most 20 %, and keep activations of at most 8 samples"""
    fault = schedule_fault(facts)
    assert fault is None, fault
    if not ranks:
        pytest.skip("no step was taken")
    first, count = facts[0], facts[0]["microbatches"]
    name, size = first["schedule"], ranks[0]["batch_size"] // count
    records = _simulated(ranks, count)
    idle = bubble(records)
    assert idle <= MOST_IDLE, (
        f"{name} with {count} microbatches leaves ranks idle for {idle:.0%} of a step, "
        f"and at most {MOST_IDLE:.0%} is asked for: more microbatches, or another schedule"
    )
    for rank, pieces in in_flight(records).items():
        own = len(facts[rank]["stages"])
        # A rank with two stages keeps half as much of a sample in each.
        kept = pieces * size / own
        where = f", each in one of its {own} stages" if own > 1 else ""
        assert kept <= MOST_KEPT, (
            f"{name} with {count} microbatches lets rank {rank} keep activations of {kept:g} samples at once, "
            f"{pieces} microbatches of {size}{where}, and at most {MOST_KEPT} is asked for: "
            "a schedule that begins backwards earlier keeps fewer"
        )


def _simulated(ranks: list[dict], microbatches: int) -> list[dict]:
    """The step as it would be if all stages took the same time, from the order in which ranks really worked."""
    todo = [[Work(*one) for one in record["order"]] for record in ranks]
    if any(one.kind == INPUT for own in todo for one in own):
        # Where some backwards are in two parts, torch joins those that follow each other anyway.
        todo = [[half for one in own for half in _halves(one)] for own in todo]
    stages = len({one.stage for own in todo for one in own})
    spans = follow(todo, [len(ranks) / stages] * stages)
    whole = {"ranks": len(ranks), "stages": stages, "microbatches": microbatches}
    return [{"rank": rank, "event": "work", **whole, "spans": own} for rank, own in enumerate(spans)]


def _halves(work: Work) -> list[Work]:
    kinds = (INPUT, WEIGHTS) if work.kind == BACKWARD else (work.kind,)
    return [Work(kind, work.stage, work.microbatch) for kind in kinds]


@needs("stages")
def test_optimizer(ranks: list[dict]) -> None:
    """TODO 5: each rank updates the parameters of its own stage"""
    if not ranks:
        pytest.skip("no step was taken")
    for record in ranks:
        held = record["optimizer"]
        # Some update by hand.
        if held is None:
            continue
        more = held["holds"] - held["own"]
        assert not more, (
            f"the optimizer of rank {record['rank']} holds {held['holds']} parameters, but only {held['own']} of them "
            f"are in its stage: the other {more} have no gradient here, give it part.parameters()"
        )
        assert held["own"] == held["stage"], (
            f"the optimizer of rank {record['rank']} holds {held['own']} of the {held['stage']} parameters of its "
            "stage: the others stay as they are"
        )


@needs("stages")
def test_step(facts: list[dict], ranks: list[dict]) -> None:
    """TODO 6: the first stage takes the pixels, the last one the targets"""
    fault = step_fault(facts)
    assert fault is None, fault
    for record in ranks:
        for one in record["changed"]:
            pytest.fail(
                f"rank {record['rank']} changed {one['what']} of batch {one['batch']} in place: its largest value was "
                f"{one['before']:g} and is {one['now']:g} now, and the caller goes on using it. "
                "Make a new tensor, x / 255"
            )


@needs("schedule", "optimizer", "step")
def test_trains(ranks: list[dict], facts: list[dict]) -> None:
    """TODO 6: the stages train as one process would train the model"""
    count, batch_size = facts[0]["microbatches"], ranks[0]["batch_size"]
    for record in ranks:
        rank, steps = record["rank"], record["steps"]
        assert steps == record["batches"], (
            f"rank {rank} took {steps} steps for {record['batches']} batches: each batch is one step"
        )
        if all(_close(off) for off in record["off"]):
            continue
        assert record["moved"] != 0, f"the weights of rank {rank} never changed: optimizer.step() follows schedule.step"
        times = record["times"]
        if record["straight"] and not math.isclose(times, 1, rel_tol=0.01):
            pytest.fail(
                f"the first update of rank {rank} is {times:.3g} times as long as that of one process: "
                f"{_why(times, count, batch_size)}"
            )
        assert not _close(record["piled"]), (
            f"the weights of rank {rank} are those of a process that adds each step's gradients to those before: "
            "optimizer.zero_grad() is missing"
        )
        step, off = next((step, off) for step, off in enumerate(record["off"], 1) if not _close(off))
        pytest.fail(
            f"after {step} of {steps} steps the weights of rank {rank} differ {_off(off)} from those of one process "
            "that took the same batches: each step is one zero_grad, one schedule.step and one optimizer.step"
        )


def _why(times: float, count: int, batch_size: int) -> str:
    size = batch_size // count
    twice = f"gradients were divided by {count} microbatches twice, by the loss and by the schedule (scale_grads)"
    known = {
        count: f"gradients of {count} microbatches were added up, and their mean is wanted (scale_grads)",
        size: f"the loss of a microbatch is the sum over its {size} samples, not their mean",
        batch_size: f"gradients of all {batch_size} samples were added up, and their mean is wanted",
        1 / count: twice,
    }
    fitting = [why for factor, why in known.items() if math.isclose(times, factor, rel_tol=0.01)]
    return fitting[0] if fitting else "the loss is to be the mean over the batch, and lr is used as it is"


def _close(off: float | None) -> bool:
    return off is not None and off <= CLOSE


def _off(off: float | None) -> str:
    return "without limit (they are no longer finite)" if off is None else f"by up to {off:.2g}"


@needs("trains")
def test_loss(ranks: list[dict], facts: list[dict]) -> None:
    """TODO 7: every rank returns the mean loss of each batch"""
    last = max(ranks, key=lambda record: max(stage["index"] for stage in facts[record["rank"]]["stages"]))["rank"]
    count, truth = facts[0]["microbatches"], ranks[0]["twin_losses"]
    # The rank that can know it is asked first.
    for record in sorted(ranks, key=lambda record: record["rank"] != last):
        rank, found = record["rank"], record["returned"]
        assert found is not None, (
            f"rank {rank} got {record['returned_type']} from train, not a list with the mean loss of each batch"
        )
        assert len(found) == len(truth), (
            f"rank {rank} returned {len(found)} losses for {len(truth)} batches: one for each batch"
        )
        wrong = [step for step, pair in enumerate(zip(found, truth, strict=True)) if not _equal(*pair)]
        if not wrong:
            continue
        value, right = found[wrong[0]], truth[wrong[0]]
        said = f"rank {rank} returned a loss of {_number(value)} for batch {wrong[0]}, but the mean is {right:.3f}"
        assert rank == last, (
            f"{said}: the loss is on the last stage, so rank {last} has to hand it to the others, with dist.broadcast"
        )
        assert not _equal(value, right * count), f"{said}: that is the sum over {count} microbatches"
        pytest.fail(f"{said}: it is the mean over all microbatches, which only rank {last} knows, with the last stage")


def _equal(value: float | None, right: float) -> bool:
    return value is not None and math.isclose(value, right, rel_tol=CLOSE, abs_tol=CLOSE)


def _number(value: float | None) -> str:
    return "nan" if value is None else f"{value:.3f}"
