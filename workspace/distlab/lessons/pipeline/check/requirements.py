"""What makes the exercise pipeline right, in the order in which one would mend it."""

import math

from distlab.checks.engine import Observed, Open, Requirements
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

HINTS = {
    "stack expects a non-empty TensorList": "in a pipeline only the last stage has losses",
    "a leaf Variable that requires grad is being used in an in-place operation": "what a stage is sent is not its own "
    "to change; make a new tensor",
}
REQUIREMENTS = Requirements(HINTS)


@REQUIREMENTS.add()
def runs(observed: Observed) -> str | None:
    """the file runs to its end on every rank"""
    if observed.trouble is None:
        return None
    said = _alone(observed)
    if said and not observed.each("raised"):
        return said
    return f"{observed.trouble}; {said}" if said else observed.trouble


def _alone(observed: Observed) -> str | None:
    """Who waits in a step that others do not take."""
    ends = [end.rank for end in observed.result.ranks]
    taken = dict.fromkeys(ends, 0) | {entry["rank"]: entry["number"] + 1 for entry in observed.each("step")}
    most = max(taken.values())
    if not most:
        if not observed.each("split"):
            return None
        left = "TODO 4 to TODO 6, the schedule and its step" if observed.each("stage") else "TODO 3, PipelineStage"
        return f"no rank has called schedule.step yet, and no stage can train without it: go on with {left}"
    behind = [rank for rank, count in taken.items() if count < most]
    # A rank that stands still elsewhere is told with its line.
    if not behind or set(behind) & set(observed.result.last("stuck")):
        return None
    ahead = [rank for rank in ends if rank not in behind]
    which = "" if most == 1 else f" for step {most}"
    return (
        f"{plural('rank', ahead)} waited in schedule.step{which}, which {plural('rank', behind)} never called: "
        "every rank calls it in every step, with or without a batch"
    )


@REQUIREMENTS.add(needs=("runs",))
def split(observed: Observed) -> str | None:
    """TODO 1: the slowest stage is as quick as it can be"""
    answers = observed.first("split")["answers"]
    fault = split_fault(**answers[-1])
    if len(answers) == 1 and fault:
        fault += ". Start with TODO 1"
    return fault


@REQUIREMENTS.add(needs=("split",))
def layers(observed: Observed) -> str | None:
    """TODO 2: each layer is in one stage, as split has it"""
    facts = observed.each("step")
    costs = observed.first("split")["answers"][-1]["costs"]
    if not facts:
        left = "a PipelineStage was made, but no schedule took a step: go on with TODO 4 to TODO 6"
        none = (
            f"no rank made a PipelineStage, so each trained all {len(costs)} layers by itself: "
            "keep the layers of one stage (TODO 2) and make it a PipelineStage (TODO 3)"
        )
        return left if observed.each("stage") else none
    return layers_fault(facts, costs)


@REQUIREMENTS.add(needs=("layers",))
def stages(observed: Observed) -> str | None:
    """TODO 3: each stage has its own index, on the device of its rank"""
    return stages_fault(observed.each("step")) or device_fault(observed.each("device"))


@REQUIREMENTS.add(needs=("stages",))
def schedule(observed: Observed) -> str | None:
    """TODO 4: ranks are idle for at most 20 %, and keep activations of at most 8 samples"""
    facts, ranks = observed.each("step"), observed.each("trained")
    fault = schedule_fault(facts)
    if fault is not None:
        return fault
    if not ranks:
        raise Open("no step was taken")
    first, count = facts[0], facts[0]["microbatches"]
    name, size = first["schedule"], ranks[0]["batch_size"] // count
    records = _simulated(ranks, count)
    idle = bubble(records)
    if idle > MOST_IDLE:
        return (
            f"{name} with {count} microbatches leaves ranks idle for {idle:.0%} of a step, "
            f"and at most {MOST_IDLE:.0%} is asked for: more microbatches, or another schedule"
        )
    for rank, pieces in in_flight(records).items():
        own = len(facts[rank]["stages"])
        # A rank with two stages keeps half as much of a sample in each.
        kept = pieces * size / own
        where = f", each in one of its {own} stages" if own > 1 else ""
        if kept > MOST_KEPT:
            return (
                f"{name} with {count} microbatches lets rank {rank} keep activations of {kept:g} samples at once, "
                f"{pieces} microbatches of {size}{where}, and at most {MOST_KEPT} is asked for: "
                "a schedule that begins backwards earlier keeps fewer"
            )
    return None


def _simulated(ranks: list[dict], microbatches: int) -> list[dict]:
    """The step as it would be if all stages took the same time, from the order in which ranks really worked."""
    todo = [[Work(*work) for work in record["order"]] for record in ranks]
    if any(work.kind == INPUT for own in todo for work in own):
        # Where some backwards are in two parts, torch joins those that follow each other anyway.
        todo = [[half for work in own for half in _halves(work)] for own in todo]
    stages = len({work.stage for own in todo for work in own})
    spans = follow(todo, [len(ranks) / stages] * stages)
    whole = {"ranks": len(ranks), "stages": stages, "microbatches": microbatches}
    return [{"rank": rank, "event": "work", **whole, "spans": own} for rank, own in enumerate(spans)]


def _halves(work: Work) -> list[Work]:
    kinds = (INPUT, WEIGHTS) if work.kind == BACKWARD else (work.kind,)
    return [Work(kind, work.stage, work.microbatch) for kind in kinds]


@REQUIREMENTS.add(needs=("stages",))
def optimizer(observed: Observed) -> str | None:
    """TODO 5: each rank updates the parameters of its own stage"""
    ranks = observed.each("trained")
    if not ranks:
        raise Open("no step was taken")
    for record in ranks:
        held = record["optimizer"]
        # Some update by hand.
        if held is None:
            continue
        more = held["holds"] - held["own"]
        if more:
            return (
                f"the optimizer of rank {record['rank']} holds {held['holds']} parameters, but only {held['own']} of "
                f"them are in its stage: the other {more} have no gradient here, give it part.parameters()"
            )
        if held["own"] != held["stage"]:
            return (
                f"the optimizer of rank {record['rank']} holds {held['own']} of the {held['stage']} parameters of its "
                "stage: the others stay as they are"
            )
    return None


@REQUIREMENTS.add(needs=("stages",))
def step(observed: Observed) -> str | None:
    """TODO 6: the first stage takes the pixels, the last one the targets"""
    facts, ranks = observed.each("step"), observed.each("trained")
    fault = step_fault(facts)
    if fault is not None:
        return fault
    for record in ranks:
        for change in record["changed"]:
            return (
                f"rank {record['rank']} changed {change['what']} of batch {change['batch']} in place: its largest "
                f"value was {change['before']:g} and is {change['now']:g} now, and the caller goes on using it. "
                "Make a new tensor, x / 255"
            )
    return None


@REQUIREMENTS.add(needs=("schedule", "optimizer", "step"))
def trains(observed: Observed) -> str | None:
    """TODO 6: the stages train as one process would train the model"""
    facts, ranks = observed.each("step"), observed.each("trained")
    count, batch_size = facts[0]["microbatches"], ranks[0]["batch_size"]
    for record in ranks:
        rank, steps = record["rank"], record["steps"]
        if steps != record["batches"]:
            return f"rank {rank} took {steps} steps for {record['batches']} batches: each batch is one step"
        if all(_close(off) for off in record["off"]):
            continue
        if record["moved"] == 0:
            return f"the weights of rank {rank} never changed: optimizer.step() follows schedule.step"
        times = record["times"]
        if record["straight"] and not math.isclose(times, 1, rel_tol=0.01):
            return (
                f"the first update of rank {rank} is {times:.3g} times as long as that of one process: "
                f"{_why(times, count, batch_size)}"
            )
        if _close(record["piled"]):
            return (
                f"the weights of rank {rank} are those of a process that adds each step's gradients to those before: "
                "optimizer.zero_grad() is missing"
            )
        step, off = next((step, off) for step, off in enumerate(record["off"], 1) if not _close(off))
        return (
            f"after {step} of {steps} steps the weights of rank {rank} differ {_off(off)} from those of one process "
            "that took the same batches: each step is one zero_grad, one schedule.step and one optimizer.step"
        )
    return None


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


@REQUIREMENTS.add(needs=("trains",))
def loss(observed: Observed) -> str | None:
    """TODO 7: every rank returns the mean loss of each batch"""
    facts, ranks = observed.each("step"), observed.each("trained")
    last = max(ranks, key=lambda record: max(stage["index"] for stage in facts[record["rank"]]["stages"]))["rank"]
    count, truth = facts[0]["microbatches"], ranks[0]["twin_losses"]
    # The rank that can know it is asked first.
    for record in sorted(ranks, key=lambda record: record["rank"] != last):
        rank, found = record["rank"], record["returned"]
        if found is None:
            return f"rank {rank} got {record['returned_type']} from train, not a list with the mean loss of each batch"
        if len(found) != len(truth):
            return f"rank {rank} returned {len(found)} losses for {len(truth)} batches: one for each batch"
        wrong = [step for step, pair in enumerate(zip(found, truth, strict=True)) if not _equal(*pair)]
        if not wrong:
            continue
        value, right = found[wrong[0]], truth[wrong[0]]
        said = f"rank {rank} returned a loss of {_number(value)} for batch {wrong[0]}, but the mean is {right:.3f}"
        if rank != last:
            return (
                f"{said}: the loss is on the last stage, so rank {last} has to hand it to the others, "
                "with dist.broadcast"
            )
        if _equal(value, right * count):
            return f"{said}: that is the sum over {count} microbatches"
        return f"{said}: it is the mean over all microbatches, which only rank {last} knows, with the last stage"
    return None


def _equal(value: float | None, right: float) -> bool:
    return value is not None and math.isclose(value, right, rel_tol=CLOSE, abs_tol=CLOSE)


def _number(value: float | None) -> str:
    return "nan" if value is None else f"{value:.3f}"
