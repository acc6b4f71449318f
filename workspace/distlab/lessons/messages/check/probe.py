"""Calls the attendee's `exchange` and `ring_all_reduce` for several tensors and numbers of ranks, and reports.

In base BASE the lower digits of a number say from which rank it is, and the upper ones from which
place, as a square: the mean of two places is none. So a sum tells whose numbers are in it, how
often, and whether one went astray. All of them are whole and exact.
"""

import math
import os
from collections import Counter
from unittest import mock

import torch
import torch.distributed as dist
from torch import Tensor

from distlab import report
from distlab.checks.probe import Attempt
from distlab.lessons.messages.check.wire import Wire
from distlab.process import Placement
from distlab.process.meeting import open_store

# Sums of so many ranks are still exact in float64.
BASE, MOST_RANKS = 8, 8
PER_RANK = 100
# A call takes milliseconds; nobody has to wait for the end of a stand-still any longer.
PATIENCE = 8.0


def cases(world_size: int) -> list[dict]:
    """What is called, in order: function, number of ranks, shape and type of the tensor."""
    n = min(world_size, MOST_RANKS)
    shapes = [(PER_RANK * n,), (10 * n + n - 1,), (3, 3), (n - 1,), (1,), ()]
    full = [{"ranks": n, "shape": list(shape), "dtype": "float64"} for shape in shapes]
    whole = {"ranks": n, "shape": [2, 50], "dtype": "int64"}
    fewer = [
        {"ranks": k, "shape": [size], "dtype": "float64"}
        for k in range(min(n - 1, 3), 0, -1)
        for size in (PER_RANK * k, 2 * k + 1)
    ]
    calls = [full[0], whole, *full[1:], *fewer]
    first = {"function": "exchange", "ranks": n, "shape": [PER_RANK], "dtype": "float64"}
    return [first, *({"function": "ring_all_reduce", **call} for call in calls)]


def numbers_of(rank: int, case: dict) -> Tensor:
    """What a rank begins with."""
    places = torch.arange(1, math.prod(case["shape"]) + 1, dtype=getattr(torch, case["dtype"]))
    return (places**2 * BASE ** case["ranks"] + BASE**rank).reshape(case["shape"])


def read(value: float, ranks: int) -> tuple[list[int] | str, int | None]:
    """How often each rank's number is in a value, and of which place; a word and None when it is no such sum."""
    if math.isnan(value) or value < -(2**60):
        return "nothing", None
    above, below = divmod(int(value), BASE**ranks)
    times = [below // BASE**rank % BASE for rank in range(ranks)]
    square, rest = divmod(above, max(sum(times), 1))
    if value != int(value) or above <= 0 or rest or math.isqrt(square) ** 2 != square:
        return "other", None
    return times, math.isqrt(square) - 1


def held(tensor: Tensor, ranks: int) -> list[list]:
    """[first place, last place, what it holds] for each run of places that hold the same."""
    runs: list[list] = []
    for place, value in enumerate(tensor.detach().flatten().tolist()):
        found, origin = read(value, ranks)
        if origin not in (place, None):
            found = "other"
        if runs and runs[-1][2] == found:
            runs[-1][1] = place
        else:
            runs.append([place, place, found])
    return runs


def content(tensor: Tensor, ranks: int) -> dict:
    """What is in a message: its first place in the tensor, wherever it was cut out, and whose numbers it holds."""
    found = [read(value, ranks) for value in tensor.detach().flatten().tolist()]
    if not found or any(what == "nothing" for what, _ in found):
        return {"start": None, "holds": "nothing"}
    times, start = found[0]
    if start is None or found != [(times, start + i) for i in range(len(found))]:
        return {"start": None, "holds": "other"}
    return {"start": start, "holds": times}


class Observer:
    """One rank's calls. Records: 'message' before each one, 'called' after each call."""

    def __init__(self, me: Placement, attempt: Attempt, store: dist.Store) -> None:
        self.me, self.attempt, self.store = me, attempt, store
        self.wire = Wire(attempt.file, attempt.doing, self._posted)
        self.tensor: Tensor | None = None
        self.counts = {"send": 0, "recv": 0}
        self.halfway: list[list] | None = None
        self.lanes: Counter = Counter()

    def _posted(self, message: dict, tensor: Tensor) -> None:
        index, ranks = self.attempt.doing["case"], self.attempt.doing["ranks"]
        if self.halfway is None and min(self.counts.values()) >= ranks - 1:
            self.halfway = held(self.tensor, ranks)
        kind = message["op"].removeprefix("i")
        self.counts[kind] += 1
        more = content(tensor, ranks) if kind == "send" else {}
        report.log(self.me, "message", case=index, **message, **more)
        if message["peer"] is not None:
            self._fits(index, kind, message)

    def _fits(self, index: int, kind: str, message: dict) -> None:
        """Both ends say what they have before they begin: gloo ends the process when the sizes differ."""
        ends = (self.me.rank, message["peer"])
        lane = ends if kind == "send" else ends[::-1]
        self.lanes[lane] += 1
        notes = dist.PrefixStore(f"lane{index}/{lane}/{self.lanes[lane]}/", self.store)
        mine = f"{message['elements']} number{'s' * (message['elements'] != 1)} of {message['dtype']}"
        notes.set(kind, mine)
        other = "recv" if kind == "send" else "send"
        if not notes.check([other]) or (theirs := notes.get(other).decode()) == mine:
            return
        has, room = (mine, theirs) if kind == "send" else (theirs, mine)
        raise ValueError(f"rank {lane[0]} sends {has}, but rank {lane[1]} has room for {room}")

    def meet(self, what: str, ranks: int, right: bool = True) -> bool:
        """Wait for ranks 0, 1 ... ranks - 1. True when each of them was right."""
        place = dist.PrefixStore(f"{what}/", self.store)
        place.set(str(self.me.rank), str(right))
        keys = [str(rank) for rank in range(ranks)]
        place.wait(keys)
        return all(place.get(key) == b"True" for key in keys)

    def call(self, index: int, case: dict) -> bool:
        """One call, in a group of its own: no message gets from one call into the next. True when it was right."""
        ranks, end = case["ranks"], f"called{index}"
        if self.me.rank >= ranks:
            return self.meet(end, ranks)
        store = dist.PrefixStore(f"group{index}/", self.store)
        # Some ask the environment who they are.
        with mock.patch.dict(os.environ, {"WORLD_SIZE": str(ranks)}):
            dist.init_process_group("gloo", store=store, rank=self.me.rank, world_size=ranks)
            right = self.meet(end, ranks, self._call(index, case))
            dist.destroy_process_group()
        return right

    def _call(self, index: int, case: dict) -> bool:
        name, ranks = case["function"], case["ranks"]
        self.wire.clear()
        self.tensor, self.halfway, self.counts = numbers_of(self.me.rank, case), None, {"send": 0, "recv": 0}
        self.lanes.clear()
        self.attempt.doing.update(case=index, ranks=ranks, op=None, peer=None)
        with self.attempt.watched():
            if name == "exchange":
                outgoing, self.tensor = self.tensor, torch.full_like(self.tensor, torch.nan)
                self.attempt.function(name, "outgoing", "incoming")(outgoing=outgoing, incoming=self.tensor)
                returned = None
            else:
                returned = self.attempt.function(name, "tensor")(tensor=self.tensor)
        found = held(self.tensor, ranks)
        report.log(
            self.me,
            "called",
            case=index,
            **case,
            held=found,
            halfway=self.halfway,
            returned=held(returned, ranks) if isinstance(returned, Tensor) else None,
            loose=self.wire.loose,
            changed=self.wire.changed,
            collectives=self.wire.collectives,
        )
        left = (self.me.rank - 1) % ranks
        wanted = [int(name == "ring_all_reduce" or rank == left) for rank in range(ranks)]
        return all(what == wanted for _, _, what in found)


def observe(me: Placement, attempt: Attempt) -> None:
    """Run the attendee's functions and report."""
    store = open_store(me)
    observer = Observer(me, attempt, store)
    observer.wire.listen()
    plan = cases(me.world_size)
    report.log(me, "plan", cases=plan)
    with attempt.watched():
        attempt.load()
        attempt.function("exchange", "outgoing", "incoming")
        attempt.function("ring_all_reduce", "tensor")
    for index, case in enumerate(plan):
        # The first mistake is enough: later cases would only fail because of it.
        if not observer.call(index, case):
            break
    # Whoever leaves early would be blamed if another fails.
    observer.meet("end", me.world_size)


def main() -> None:
    """PROBE FILE SECONDS"""
    attempt = Attempt.asked_for(PATIENCE)
    observe(attempt.me, attempt)


if __name__ == "__main__":
    main()
