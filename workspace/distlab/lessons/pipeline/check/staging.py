"""What is wrong with a pipeline before its first message: a sentence, or None.

Every rank says what it is about to do when it calls its schedule's `step` for the first time. A mistake
that is read there has not yet made ranks wait for messages that never come. Such facts of a rank are:
schedule (name of its class), microbatches, loss (has a loss function), stages (each: index, count, device,
layers, rank to which the schedule sends what the stage needs), sizes (samples of each microbatch), inputs,
most (largest input, or None), targets, device (of its messages).
"""

from collections.abc import Callable, Sequence

from distlab.checks.result import plural
from distlab.lessons.pipeline import cuts

# Sums of the same numbers in another order.
ROUNDING = 1 + 1e-9


def stage_costs(costs: Sequence[float], split: Sequence[int]) -> list[float]:
    """Cost of each stage of a split."""
    ends = [sum(split[: stage + 1]) for stage in range(len(split))]
    return [sum(costs[end - count : end]) for end, count in zip(ends, split, strict=True)]


def best_cost(costs: Sequence[float], stages: int) -> float:
    """Cost of the slowest stage when layers are split as well as can be."""
    return max(stage_costs(costs, cuts.split(costs, stages)))


def split_fault(costs: Sequence[float], stages: int, found: object) -> str | None:
    """What is wrong with an answer of split(costs, stages)."""
    said = f"with costs {_numbers(costs)} and {_many(stages, 'stage')} split gave {_shown(found)}"
    if not isinstance(found, list):
        return f"{said}: it should be a list with the number of layers of each stage"
    if len(found) != stages:
        return f"{said}, {_many(len(found), 'number')} for {_many(stages, 'stage')}: one for each stage"
    if min(found) < 1:
        empty = [stage for stage, count in enumerate(found) if count < 1]
        return f"{said}: {plural('stage', empty)} would have no layer, and each needs one or more"
    if sum(found) != len(costs):
        more = sum(found) - len(costs)
        wrong = f"{_many(abs(more), 'layer')} would be {'taken twice' if more > 0 else 'lost'}"
        return f"{said}: that is {sum(found)} layers, but there are {len(costs)}, so {wrong}"
    return _unbalanced(said, stage_costs(costs, found), best_cost(costs, stages))


def _unbalanced(said: str, each: list[float], best: float) -> str | None:
    if max(each) <= best * ROUNDING:
        return None
    slow = each.index(max(each))
    return (
        f"{said}: its slowest stage, stage {slow}, costs {max(each):g}, but {best:g} is possible. "
        "All others wait for the slowest stage, in every microbatch"
    )


def layers_fault(facts: list[dict], costs: Sequence[float]) -> str | None:
    """A layer that no rank has, or two, or stages that could be better balanced."""
    holders = [[rank for rank, fact in enumerate(facts) if _has(fact, layer)] for layer in range(len(costs))]
    if all(len(ranks) == len(facts) for ranks in holders) and len(facts) > 1:
        return f"every rank has all {len(costs)} layers in its stage: keep those of one stage, model[first:end]"
    for layer, ranks in enumerate(holders):
        if not ranks:
            return (
                f"layer {layer} of {len(costs)} is on no rank: "
                "the layers of a stage begin where those of the stage before end"
            )
        if len(ranks) > 1:
            return (
                f"layer {layer} is on {plural('rank', ranks)}, and would be taken more than once: "
                "the layers of a stage begin where those of the stage before end"
            )
    stages = sorted(stage["layers"] for fact in facts for stage in fact["stages"])
    in_order = [sum(costs[layer] for layer in layers) for layers in stages]
    said = f"the {len(in_order)} stages cost {_numbers(in_order)}"
    return _unbalanced(said, in_order, best_cost(costs, len(in_order)))


def _has(fact: dict, layer: int) -> bool:
    return any(layer in stage["layers"] for stage in fact["stages"])


def stages_fault(facts: list[dict]) -> str | None:
    """A stage with a wrong number, or on a device from which its rank cannot send."""
    total = sum(len(fact["stages"]) for fact in facts)
    owners: dict[int, int] = {}
    for rank, fact in enumerate(facts):
        for stage in fact["stages"]:
            index, count = stage["index"], stage["count"]
            if count != total:
                return f"rank {rank} says that there are {_many(count, 'stage')}, but the ranks have {total} in all"
            if index in owners:
                who = f"ranks {owners[index]} and {rank} both" if owners[index] != rank else f"rank {rank} twice"
                return (
                    f"{who} made stage {index}, and {_nobody(facts, total)}: the index of a stage is its place "
                    "in the whole pipeline, me.rank when each rank has one"
                )
            owners[index] = rank
            if stage["rank"] != rank:
                return (
                    f"rank {rank} made stage {index}, but {fact['schedule']} looks for it on rank {stage['rank']}: "
                    "others would wait for its messages there"
                )
            if stage["device"] != fact["device"]:
                return _elsewhere(rank, index, stage["device"], f"while its messages come from {fact['device']}")
    in_order = sorted(
        (stage["index"], stage["layers"]) for fact in facts for stage in fact["stages"] if stage["layers"]
    )
    for (_, before), (index, layers) in zip(in_order, in_order[1:], strict=False):
        if min(layers) < max(before):
            return (
                f"stage {index} begins with layer {min(layers)}, but stage {index - 1} ends with layer {max(before)}: "
                "stages follow one another as layers do"
            )
    return None


def _nobody(facts: list[dict], total: int) -> str:
    there = {stage["index"] for fact in facts for stage in fact["stages"]}
    missing = [index for index in range(total) if index not in there]
    return f"nobody made {plural('stage', missing)}"


def _elsewhere(rank: int, index: int, device: str, but: str) -> str:
    return f"rank {rank} puts stage {index} on {device}, {but}: take the device from me.message_device"


def device_fault(records: list[dict]) -> str | None:
    """A stage that does not follow its rank to another device.

    Args:
        records: what each rank did when it was told that its device is another one: asked, index, device,
            layers (devices of the stage's parameters).
    """
    for record in records:
        for stage in record["stages"]:
            where = f"even where its device is not {stage['device']}"
            if stage["device"] != record["asked"]:
                return _elsewhere(record["rank"], stage["index"], stage["device"], where)
            for device in stage["layers"]:
                if device != record["asked"]:
                    return (
                        f"rank {record['rank']} makes stage {stage['index']} for its own device, but leaves the layers "
                        f"on {device}: move them to me.message_device"
                    )
    return None


def schedule_fault(facts: list[dict]) -> str | None:
    """Ranks that follow different schedules, or a batch that cannot be cut equally."""
    first = facts[0]
    for rank, fact in enumerate(facts):
        for name, what in (("schedule", "follows {}"), ("microbatches", "cuts the batch into {} microbatches")):
            if fact[name] != first[name]:
                return (
                    f"rank 0 {what.format(first[name])}, but rank {rank} {what.format(fact[name])}: "
                    "all ranks need the same schedule"
                )
    without = [rank for rank, fact in enumerate(facts) if not fact["loss"]]
    if without:
        return (
            f"the schedule of {plural('rank', without)} has no loss_fn, so it does forwards only: give it on every "
            "rank. Only the last stage calls it, but the others need to know that there is a backward"
        )
    for fact in facts:
        sizes = fact["sizes"]
        if sizes and len(set(sizes)) > 1:
            fits = [count for count in range(1, sum(sizes) + 1) if sum(sizes) % count == 0]
            return (
                f"a batch of {sum(sizes)} is not divisible by {fact['microbatches']} microbatches: some would have "
                f"{max(sizes)} samples and some {min(sizes)}, but stages make room for one size. "
                f"It can be {', '.join(map(str, fits[:-1]))} or {fits[-1]}"
            )
    return None


def step_fault(facts: list[dict]) -> str | None:
    """Pixels or targets that the wrong rank gives, or the right one does not."""
    for rank, fact in enumerate(facts):
        own = [stage["index"] for stage in fact["stages"]]
        last = fact["stages"][0]["count"] - 1
        who = f"rank {rank}, which has {plural('stage', own)} of {last + 1},"
        if 0 in own and not fact["inputs"]:
            return f"{who} gives no input to step: the first stage takes the pixels"
        if 0 not in own and fact["inputs"]:
            return (
                f"{who} gives an input to step: it takes what stage {own[0] - 1} sends, and only the rank of "
                "stage 0 gives the pixels"
            )
        if last in own and not fact["targets"]:
            return f"{who} gives no target to step: the loss is on the last stage, so that is where the targets go"
        if last not in own and fact["targets"]:
            return f"{who} gives targets to step: the loss is on the last stage, which rank {_rank_of(facts, last)} has"
    for rank, fact in enumerate(facts):
        if fact["most"] is not None and fact["most"] > 1:
            return f"rank {rank} gives pixels up to {fact['most']:g} to step: the model takes them from 0 to 1, x / 255"
    return None


def _rank_of(facts: list[dict], index: int) -> int:
    return next(rank for rank, fact in enumerate(facts) if index in [stage["index"] for stage in fact["stages"]])


def must_not_begin(facts: list[dict], costs: Sequence[float]) -> bool:
    """True when a mistake is already known: if training began, most of them would make ranks wait for ever."""
    faults: list[Callable[[], str | None]] = [
        lambda: layers_fault(facts, costs),
        lambda: stages_fault(facts),
        lambda: schedule_fault(facts),
        lambda: step_fault(facts),
    ]
    return any(fault() for fault in faults)


def _numbers(values: Sequence[float]) -> str:
    return f"[{', '.join(f'{value:g}' for value in values)}]"


def _shown(found: object) -> str:
    return _numbers(found) if isinstance(found, list) else str(found)


def _many(count: int, word: str) -> str:
    return f"{count} {word}{'s' * (count != 1)}"
