"""Calls the attendee's `split` and `train` in every rank and reports what they did.

Before a schedule takes a step, all ranks say what they are about to do, and a mistake that would make
them wait for ever ends the call there. After it, each rank trains a twin: one process that takes the
same batches with the whole model. Two batches come round twice, so a batch that was changed is seen.
"""

import copy
import dataclasses
import functools
import itertools
import json
from collections.abc import Callable, Iterable
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.pipelining import stage as torch_stage
from torch.distributed.pipelining.schedules import PipelineScheduleMulti, PipelineScheduleSingle
from torch.nn.functional import cross_entropy
from torch.optim import Optimizer
from torch.optim.optimizer import register_optimizer_step_pre_hook

from distlab import report
from distlab.checks.probe import Attempt
from distlab.lessons.pipeline.check.staging import must_not_begin, split_fault
from distlab.lessons.pipeline.orders import BACKWARD, FORWARD, INPUT, WEIGHTS
from distlab.process import Rank
from distlab.process.meeting import open_store

BATCH_SIZE, BATCHES, ROUNDS, LR = 32, 2, 2, 0.2
# Numbers that go into each layer, and out of the last one: a few layers are heavy.
WIDTHS = [20, 12, 48, 12, 48, 12, 12, 12, 12, 12, 12, 12, 5]
COSTS = [float(into * out) for into, out in itertools.pairwise(WIDTHS)]
# Costs and stages. Who fills stages up to the average goes wrong in some, who shares layers out equally in most.
SPLITS = [
    ([1.0] * 8, 4),
    ([2.0, 2.0, 2.0, 9.0, 2.0, 2.0, 2.0, 2.0], 4),
    ([3.0, 3.0, 4.0, 3.0, 3.0], 3),
    ([1.0, 1.0, 1.0, 1.0, 1.0, 9.0], 3),
    ([9.0, 1.0, 1.0, 1.0, 1.0, 1.0], 4),
    ([0.5, 2.25, 0.5], 1),
    ([3.0, 1.0, 2.0, 5.0], 4),
    (COSTS, 4),
    (COSTS, 8),
]
# A check takes seconds; nobody has to wait for the end of a stand-still any longer.
PATIENCE = 8.0

Stage = torch_stage._PipelineStageBase


class Halt(BaseException):
    """Ends the attendee's call on every rank at the same point. No Exception, which some catch."""


def network() -> nn.Sequential:
    """A layer for each pair of widths; every parameter has numbers of its own."""
    torch.manual_seed(7)
    net = nn.Sequential(*(nn.Sequential(nn.Tanh(), nn.Linear(*pair)) for pair in itertools.pairwise(WIDTHS)))
    for parameter in net.parameters():
        if parameter.dim() == 2:
            # The signal keeps its size through a dozen layers, so the first learns as well as the last.
            nn.init.xavier_normal_(parameter, gain=5 / 3)
    return net


def batches() -> list[tuple[Tensor, Tensor]]:
    """Pixels from 0 to 255 and targets; the same on every rank."""
    numbers = torch.Generator().manual_seed(8)
    return [
        (
            torch.randint(256, (BATCH_SIZE, WIDTHS[0]), generator=numbers).float(),
            torch.randint(WIDTHS[-1], (BATCH_SIZE,), generator=numbers),
        )
        for _ in range(BATCHES)
    ] * ROUNDS


class Twin:
    """One process's training: weights by name before each step and at the end, and the loss of each step.

    Args:
        keeps: share of the last step's gradients to which the next ones are added.
    """

    def __init__(self, net: nn.Module, keeps: float = 0.0) -> None:
        optimizer = torch.optim.SGD(net.parameters(), lr=LR)
        self.weights = [weights(net.named_parameters())]
        self.losses: list[float] = []
        for x, y in batches():
            for p in net.parameters():
                p.grad = keeps * p.grad if self.losses else None
            loss = cross_entropy(net(x / 255), y)
            loss.backward()
            optimizer.step()
            self.weights.append(weights(net.named_parameters()))
            self.losses.append(loss.item())


def weights(named: Iterable[tuple[str, nn.Parameter]]) -> dict[str, Tensor]:
    """Copies of parameters by name."""
    return {name: p.detach().cpu().clone() for name, p in named}


class Ledger:
    """What `train` does, seen from torch's own stages, schedules and optimizers.

    Records: 'step' when a rank enters its schedule's step, 'stage' when it has made one.
    """

    def __init__(self, me: Rank, store: dist.Store, net: nn.Module) -> None:
        self.me, self.store = me, store
        self.known = weights(net.named_parameters())
        self.stages: dict[Stage, dict[str, nn.Parameter]] = {}
        self.steps: list[dict[str, Tensor]] = []
        self.microbatches = 1
        self.order: list[list] = []
        self.optimizer: dict | None = None
        self.pretends: list[dict] | None = None

    def listen(self) -> None:
        """Take the place of torch's functions, for good."""
        self._replace(Stage, "__init__", self._make)
        self._replace(Stage, "forward_one_chunk", self._work(lambda _: FORWARD))
        self._replace(Stage, "backward_one_chunk", self._work(lambda how: BACKWARD if how else INPUT))
        self._replace(Stage, "backward_weight_one_chunk", self._work(lambda _: WEIGHTS))
        for schedule in (PipelineScheduleSingle, PipelineScheduleMulti):
            self._replace(schedule, "step", self._step)
        register_optimizer_step_pre_hook(self._update)

    def _replace(self, kind: type, name: str, instead: Callable) -> None:
        real = getattr(kind, name)

        @functools.wraps(real)
        def seen(this: Any, *args: Any, **kwargs: Any) -> Any:
            return instead(real, this, *args, **kwargs)

        setattr(kind, name, seen)

    def _make(
        self,
        real: Callable,
        stage: Stage,
        submodule: nn.Module,
        stage_index: int,
        num_stages: int,
        device: torch.device,
        *args: Any,
        **kwargs: Any,
    ) -> None:
        if self.pretends is not None:
            # A traced stage moves its layers itself, a moment later.
            by_hand = isinstance(stage, torch_stage.PipelineStage)
            layers = sorted({str(p.device) for p in submodule.parameters()}) if by_hand else []
            self.pretends.append({"index": stage_index, "device": str(torch.device(device)), "layers": layers})
            raise Halt
        report.log(self.me, "stage", index=stage_index, count=num_stages)
        real(stage, submodule, stage_index, num_stages, device, *args, **kwargs)
        named: dict[str, nn.Parameter] = {}
        for p in submodule.parameters():
            same = [name for name, known in self.known.items() if torch.equal(p.detach().cpu(), known)]
            named |= dict.fromkeys(same, p)
        self.stages[stage] = named

    def _work(self, kind: Callable[[bool], str]) -> Callable:
        def works(real: Callable, stage: Stage, microbatch: int, *args: Any, **kwargs: Any) -> Any:
            if len(self.steps) == 1:
                self.order.append([kind(kwargs.get("full_backward", True)), stage.stage_index, microbatch])
            return real(stage, microbatch, *args, **kwargs)

        return works

    def _step(
        self,
        real: Callable,
        schedule: Any,
        *args: Any,
        target: Tensor | None = None,
        arg_mbs: list | None = None,
        target_mbs: list | None = None,
        **kwargs: Any,
    ) -> Any:
        given = args[0] if args else [inputs[0] for inputs in arg_mbs or [] if inputs]
        targets = target if target is not None else target_mbs
        # There is no public way to ask a schedule what it has been given.
        stages = getattr(schedule, "_stages", None) or [schedule._stage]
        facts = {
            "schedule": type(schedule).__name__,
            "microbatches": schedule._n_microbatches,
            "loss": schedule._has_backward,
            "stages": [self._stage(stage) for stage in stages],
            "sizes": _sizes(given if len(given) else targets, schedule._n_microbatches),
            "inputs": len(given) > 0,
            "most": max(float(part.max()) for part in given) if len(given) else None,
            "targets": targets is not None,
            "device": str(self.me.message_device),
        }
        own = [pair for stage in stages for pair in self.stages[stage].items()]
        report.log(self.me, "step", number=len(self.steps), **facts)
        everyone = self._meet(facts)
        self.steps.append(weights(own))
        self.microbatches = schedule._n_microbatches
        if must_not_begin(everyone, COSTS):
            raise Halt
        more = {"target": target, "arg_mbs": arg_mbs, "target_mbs": target_mbs}
        return real(schedule, *args, **more, **kwargs)

    def _stage(self, stage: Stage) -> dict:
        layers = sorted({int(name.split(".")[0]) for name in self.stages[stage]})
        return {
            "index": stage.stage_index,
            "count": stage.num_stages,
            "device": str(torch.device(stage.device)),
            "layers": layers,
            "rank": stage.stage_index_to_group_rank[stage.stage_index],
        }

    def _meet(self, facts: dict) -> list[dict]:
        """What each rank is about to do, in rank order, once all have come."""
        place = dist.PrefixStore(f"step{len(self.steps)}/", self.store)
        place.set(str(self.me.rank), json.dumps(facts))
        keys = [str(rank) for rank in range(self.me.world_size)]
        place.wait(keys)
        return [json.loads(place.get(key)) for key in keys]

    def _update(self, optimizer: Optimizer, *_: object) -> None:
        own = {id(p) for named in self.stages.values() for p in named.values()}
        held = [p for group in optimizer.param_groups for p in group["params"]]
        self.optimizer = {"holds": len(held), "own": sum(id(p) in own for p in held), "stage": len(own)}

    def end(self) -> dict[str, Tensor]:
        """Weights of this rank's stages as they are now."""
        return weights(pair for named in self.stages.values() for pair in named.items())


def _sizes(batch: Tensor | list[Tensor] | None, microbatches: int) -> list[int] | None:
    if batch is None:
        return None
    parts = batch.tensor_split(microbatches) if isinstance(batch, Tensor) else batch
    return [len(part) for part in parts]


def compared(ledger: Ledger, net: nn.Module, microbatches: int) -> dict:
    """How this rank's weights went, held against one process.

    `off` is the largest difference after each step, `piled` that at the end from a process that never clears its
    gradients, `times` how many times as far as that of the twin the first update went, `straight` is True where it
    went the same way, `moved` is the largest change.
    """
    states = [*ledger.steps, ledger.end()]
    twin = Twin(copy.deepcopy(net))
    # A schedule that divides gradients by the number of microbatches also divides those that were left there.
    piled = [Twin(copy.deepcopy(net), keeps) for keeps in (1.0, 1 / microbatches)]
    last = min(len(states), len(twin.weights)) - 1
    before, after = flat(states[0]), flat(states[1])
    start, step = (flat({name: state[name] for name in states[0]}) for state in twin.weights[:2])
    went, right = after - before, step - start
    times = float(went @ right / (right @ right))
    return {
        "off": [apart(state, other) for state, other in zip(states[1:], twin.weights[1:], strict=False)],
        "piled": min(apart(states[last], other.weights[last]) for other in piled),
        "times": times,
        "straight": bool((went - times * right).norm() <= 1e-3 * went.norm()),
        "moved": apart(states[-1], states[0]),
        "twin_losses": twin.losses,
    }


def flat(state: dict[str, Tensor]) -> Tensor:
    """All weights in one vector."""
    return torch.cat([value.flatten() for value in state.values()])


def apart(own: dict[str, Tensor], other: dict[str, Tensor]) -> float:
    """Largest difference of weights of the same names."""
    return max(float((value - other[name]).abs().max()) for name, value in own.items())


def splits(split: Callable) -> list[dict]:
    """What `split` answers, up to the first answer that is wrong."""
    answers: list[dict[str, Any]] = []
    for costs, stages in SPLITS:
        found = split(costs=list(costs), stages=stages)
        plain = isinstance(found, (list, tuple)) and all(isinstance(count, int) for count in found)
        answers.append({"costs": costs, "stages": stages, "found": list(found) if plain else repr(found)})
        if split_fault(**answers[-1]):
            break
    return answers


def changed(before: list[tuple[Tensor, Tensor]], after: list[tuple[Tensor, Tensor]]) -> list[dict]:
    """Which of the batches are no longer what they were: number, which of the pair, largest value before and now."""
    return [
        {"batch": number, "what": what, "before": float(tensor.max()), "now": float(other.max())}
        for number, pair in enumerate(zip(before, after, strict=True))
        for what, tensor, other in zip(("x", "y"), *pair, strict=True)
        if not torch.equal(tensor, other)
    ]


def pretend(me: Rank, train: Callable, ledger: Ledger, net: nn.Module) -> None:
    """See where `train` makes its stage when the rank's device is another one, without going on."""
    elsewhere = dataclasses.replace(me, device=torch.device("meta"), backend="nccl")
    ledger.pretends = []
    try:
        train(me=elsewhere, model=net, costs=list(COSTS), batches=batches(), lr=LR)
    except (Halt, Exception):
        # What else cannot be done on a device without memory is no mistake.
        pass
    report.log(me, "device", asked=str(elsewhere.message_device), stages=ledger.pretends)


def observe(me: Rank, attempt: Attempt, store: dist.Store) -> None:
    """Run the attendee's functions and report."""
    net = network()
    ledger = Ledger(me, store, net)
    ledger.listen()
    given, returned = batches(), None
    with attempt.watched():
        attempt.load()
        split = attempt.function("split", "costs", "stages")
        train = attempt.function("train", "me", "model", "costs", "batches", "lr")
        answers = splits(split)
        report.log(me, "split", answers=answers)
        if split_fault(**answers[-1]):
            return
        # Whoever builds a model anew, or by chance, is found out.
        torch.manual_seed(me.rank)
        try:
            returned = train(me=me, model=copy.deepcopy(net), costs=list(COSTS), batches=given, lr=LR)
        except Halt:
            return
        if not ledger.steps:
            return
        pretend(me, train, ledger, copy.deepcopy(net))
    plain = isinstance(returned, (list, tuple)) and all(_is_number(loss) for loss in returned)
    report.log(
        me,
        "trained",
        layers=len(COSTS),
        batch_size=BATCH_SIZE,
        steps=len(ledger.steps),
        batches=len(given),
        order=ledger.order,
        changed=changed(batches(), given),
        optimizer=ledger.optimizer,
        returned=[float(loss) for loss in returned] if plain else None,
        returned_type=type(returned).__name__,
        **compared(ledger, net, ledger.microbatches),
    )


def _is_number(value: object) -> bool:
    return isinstance(value, (int, float)) or (isinstance(value, Tensor) and value.numel() == 1)


def main() -> None:
    """PROBE FILE SECONDS"""
    attempt = Attempt.asked_for(PATIENCE)
    at = attempt.me
    store = open_store(at)
    # Not process.group(), which would print: only the attendee's file has something to say.
    dist.init_process_group("gloo", store=dist.PrefixStore("group", store), rank=at.rank, world_size=at.world_size)
    me = Rank(**vars(at), device=torch.device("cpu"), backend="gloo", reason="a check runs on the CPU")
    observe(me, attempt, store)
    # Whoever leaves early would be blamed if another fails.
    end = dist.PrefixStore("end/", store)
    end.set(str(me.rank), "")
    end.wait([str(rank) for rank in range(me.world_size)])
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
