"""Objects as messages: what Python's pickle costs for a tensor, what it drags along, and what it may do."""

import argparse
import os
import pickle
import statistics
from collections.abc import Callable

import torch
import torch.distributed as dist

from distlab import process, report
from distlab.measure.sent import tcp_bytes_sent

MARK = "DISTLAB_UNPICKLED_BY"


class Visitor:
    """Looks like data. To unpickle it is to call a function that its sender chose."""

    def __init__(self, sender: int) -> None:
        self.sender = sender

    def __reduce__(self) -> tuple:
        # Harmless here; it could be any code at all.
        return exec, (f"import os; os.environ[{MARK!r}] = 'rank {self.sender}'",)


def timed(me: process.Rank, call: Callable[[], object], repeats: int) -> tuple[float, int | None]:
    """Median seconds of a call on all ranks together, and the bytes that left this rank for one of them."""
    call()
    seconds, sent = [], None
    for _ in range(repeats):
        dist.barrier()
        before, start = tcp_bytes_sent(), process.now(me.device)
        call()
        seconds.append(process.now(me.device) - start)
        dist.barrier()
        after = tcp_bytes_sent()
        sent = after - before if me.backend == "gloo" and None not in (before, after) else None
    return statistics.median(seconds), sent


def main() -> None:
    """Run the experiment on this rank. Reports `way`, `same`, `view` and `visitor`."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--bytes", type=int, default=4_000_000, help="of the tensor that each rank gives")
    parser.add_argument("--repeats", type=int, default=3)
    args = parser.parse_args()
    with process.group() as me:
        mine = torch.full((args.bytes // 4,), float(me.rank), device=me.device)
        places = [torch.empty_like(mine) for _ in range(me.world_size)]
        objects: list = [None] * me.world_size
        ways = {
            "all_gather": lambda: dist.all_gather(places, mine),
            "all_gather_object": lambda: dist.all_gather_object(objects, mine),
        }
        for way, call in ways.items():
            seconds, sent = timed(me, call, args.repeats)
            report.log(me, "way", way=way, bytes=mine.nbytes, seconds=seconds, sent=sent)
        same = all(torch.equal(gathered.cpu(), place.cpu()) for gathered, place in zip(objects, places, strict=True))
        report.log(me, "same", same=same, devices=[str(gathered.device) for gathered in objects])

        table = torch.zeros(1000, 1000)
        row = table[0]
        pickled, cloned = (len(pickle.dumps(tensor)) for tensor in (row, row.clone()))
        report.log(me, "view", table=table.nbytes, row=row.nbytes, pickled=pickled, cloned=cloned)

        for careful in (False, True):
            os.environ.pop(MARK, None)
            box = [Visitor(me.rank) if me.is_main else None]
            refused = None
            try:
                dist.broadcast_object_list(box, src=0, weights_only=careful)
            except pickle.UnpicklingError as error:
                refused = str(error).partition("\n")[0]
            report.log(me, "visitor", weights_only=careful, ran=os.environ.get(MARK), refused=refused)


if __name__ == "__main__":
    main()
