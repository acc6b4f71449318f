"""Every collective once, on a few numbers: what each rank holds before and after it, and how many bytes travel.

Rank r's numbers are 10 r, 10 r + 1, ..., so that a number says where it came from.
"""

import argparse
import time
from collections.abc import Callable
from functools import partial

import torch
import torch.distributed as dist
from torch import Tensor

from distlab import process, report
from distlab.measure.sent import tcp_bytes_sent

EMPTY = -1
# Each place has four different numbers of three bits, and their product is short enough to draw.
SMALL = ((3, 1, 6), (1, 5, 4), (7, 3, 2), (5, 2, 5))
REDUCE_OPS = ("SUM", "AVG", "PRODUCT", "MIN", "MAX", "BAND", "BOR", "BXOR")
BITWISE = ("BAND", "BOR", "BXOR")
MESSAGE = 4_000_000
STEP_SECONDS = 0.15


class Collectives:
    """Each collective on a vector of one part per rank; a method runs it and returns (before, after)."""

    ROOT = 0

    def __init__(
        self,
        me: process.Rank,
        part: int,
        device: torch.device | None = None,
        group: dist.ProcessGroup | None = None,
    ) -> None:
        self.me, self.part = me, part
        self.size = part * me.world_size
        self.device, self.group = device or me.device, group

    def own(self, length: int) -> Tensor:
        """This rank's numbers."""
        return 10.0 * self.me.rank + torch.arange(length, dtype=torch.float32, device=self.device) % 10

    def empty(self, length: int) -> Tensor:
        """A place for numbers to come."""
        return torch.full((length,), float(EMPTY), device=self.device)

    def places(self) -> list[Tensor]:
        """A place for a part of every rank."""
        return [self.empty(self.part) for _ in range(self.me.world_size)]

    def parts(self, whole: Tensor) -> list[Tensor]:
        """A part for every rank."""
        return list(whole.split(self.part))

    @property
    def is_root(self) -> bool:
        """Whether this rank gives to all others, or takes from them."""
        return self.me.rank == self.ROOT

    def broadcast(self) -> tuple[Tensor, Tensor]:
        """The root's vector comes to all."""
        vector = self.own(self.size) if self.is_root else self.empty(self.size)
        before = vector.clone()
        dist.broadcast(vector, self.ROOT, group=self.group)
        return before, vector

    def scatter(self) -> tuple[Tensor, Tensor]:
        """Each rank gets one part of the root's vector."""
        vector = self.own(self.size)
        mine = self.empty(self.part)
        dist.scatter(mine, self.parts(vector) if self.is_root else None, self.ROOT, group=self.group)
        return vector if self.is_root else self.empty(0), mine

    def gather(self) -> tuple[Tensor, Tensor]:
        """The root gets a part of each rank."""
        mine, places = self.own(self.part), self.places()
        dist.gather(mine, places if self.is_root else None, self.ROOT, group=self.group)
        return mine, torch.cat(places) if self.is_root else self.empty(0)

    def reduce(self) -> tuple[Tensor, Tensor]:
        """The root gets the sum of all vectors. What the others hold afterwards is undefined."""
        vector = self.own(self.size)
        before = vector.clone()
        dist.reduce(vector, self.ROOT, group=self.group)
        return before, vector if self.is_root else self.empty(0)

    def all_gather(self) -> tuple[Tensor, Tensor]:
        """Everybody gets a part of each rank."""
        mine, places = self.own(self.part), self.places()
        dist.all_gather(places, mine, group=self.group)
        return mine, torch.cat(places)

    def all_reduce(self) -> tuple[Tensor, Tensor]:
        """Everybody gets the sum of all vectors."""
        vector = self.own(self.size)
        before = vector.clone()
        dist.all_reduce(vector, group=self.group)
        return before, vector

    def reduce_scatter(self) -> tuple[Tensor, Tensor]:
        """Each rank gets one part of the sum of all vectors."""
        vector, mine = self.own(self.size), self.empty(self.part)
        dist.reduce_scatter(mine, self.parts(vector), group=self.group)
        return vector, mine

    def all_to_all(self) -> tuple[Tensor, Tensor]:
        """Each rank gives each other one part, and gets one of each."""
        vector, places = self.own(self.size), self.places()
        dist.all_to_all(places, self.parts(vector), group=self.group)
        return vector, torch.cat(places)


NAMES = ("broadcast", "scatter", "gather", "reduce", "all_gather", "all_reduce", "reduce_scatter", "all_to_all")


def show(me: process.Rank) -> None:
    """Each collective on four numbers or so, reported."""
    small = Collectives(me, part=1)
    for name in NAMES:
        before, after = getattr(small, name)()
        report.log(me, "collective", name=name, before=before, after=after)


def reduce_with_each_op(me: process.Rank) -> None:
    """all_reduce with each of torch's operations, on whole numbers where it looks at bits."""
    for name in REDUCE_OPS:
        numbers = torch.tensor(SMALL[me.rank % len(SMALL)], device=me.device)
        vector = numbers.clone() if name in BITWISE else numbers.float()
        refused = attempt(partial(dist.all_reduce, vector, getattr(dist.ReduceOp, name)))
        report.log(me, "op", name=name, before=numbers, after=None if refused else vector, refused=refused)


def attempt(call: Callable[[], object]) -> str | None:
    """None when a call works here, else what torch says. All ranks of one kind are refused alike."""
    try:
        call()
    except (RuntimeError, ValueError) as error:
        return str(error).partition("\n")[0]
    return None


def wait_at_barrier(me: process.Rank) -> None:
    """Ranks come to a barrier one after the other; how long does each wait in it?"""
    dist.barrier()
    time.sleep(STEP_SECONDS * me.rank)
    start = time.perf_counter()
    dist.barrier()
    report.log(me, "barrier", late=STEP_SECONDS * me.rank, waited=time.perf_counter() - start)


def count_bytes(me: process.Rank, size: int) -> None:
    """The same collectives on vectors of `size` bytes: what leaves each rank by TCP."""
    large = Collectives(me, part=size // 4 // me.world_size)
    for name in (*NAMES, "barrier"):
        call = getattr(large, name, dist.barrier)
        call()
        # What is still on its way must not be counted for the next one.
        dist.barrier()
        before = tcp_bytes_sent()
        call()
        dist.barrier()
        after = tcp_bytes_sent()
        counted = after - before if me.backend == "gloo" and None not in (before, after) else None
        report.log(me, "bytes", name=name, size=large.size * 4, sent=counted)


def main() -> None:
    """Run the experiment on this rank. Reports `collective`, `op`, `barrier` and `bytes`."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--bytes", type=int, default=MESSAGE, help="of the vector whose way is counted")
    args = parser.parse_args()
    with process.group() as me:
        show(me)
        reduce_with_each_op(me)
        wait_at_barrier(me)
        count_bytes(me, args.bytes)


if __name__ == "__main__":
    main()
