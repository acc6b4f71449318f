"""A message that comes late: waited for with recv and worked then, or asked for with irecv and worked in the meantime.

Rank 0 sends to rank 1 only after some work of its own. Times are in milliseconds since both began.
"""

import argparse
import time
from collections.abc import Callable
from functools import partial

import torch
import torch.distributed as dist

from distlab import process, report


class Clock:
    """Spans of one rank since a barrier, reported as they end."""

    def __init__(self, me: process.Rank, way: str) -> None:
        self.me, self.way = me, way
        dist.barrier()
        self.begun = time.perf_counter()

    def span(self, kind: str, call: Callable[[], object]) -> object:
        """Do something and report how long it took."""
        start = time.perf_counter()
        value = call()
        end = process.now(self.me.message_device)
        spans = {"start": 1e3 * (start - self.begun), "end": 1e3 * (end - self.begun)}
        report.log(self.me, "span", way=self.way, kind=kind, **spans)
        return value


def work(seconds: float) -> None:
    """Compute for so long."""
    end, square = time.perf_counter() + seconds, torch.rand(64, 64)
    while time.perf_counter() < end:
        square = (square @ square).softmax(1)


def main() -> None:
    """Run the experiment on this rank. Reports `span` and `box`."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--late", type=float, default=0.4, help="seconds that the sender works before it sends")
    parser.add_argument("--work", type=float, default=0.4, help="seconds of work that the receiver has")
    args = parser.parse_args()
    with process.group() as me:
        message = torch.full((1000,), 1.0 + me.rank, device=me.message_device)
        # The first message of two ranks also makes their connection.
        if me.rank < 2:
            (dist.recv if me.rank else dist.send)(message.clone(), 1 - me.rank)
        for way in ("recv", "irecv"):
            box, early = torch.zeros_like(message), None
            clock = Clock(me, way)
            if me.rank == 0:
                clock.span("work", lambda: work(args.late))
                clock.span("send", lambda: dist.send(message, 1))
            elif me.rank == 1 and way == "recv":
                clock.span("wait", partial(dist.recv, box, 0))
                clock.span("work", lambda: work(args.work))
            elif me.rank == 1:
                coming = dist.irecv(box, 0)
                early = box[0].item()
                clock.span("work", lambda: work(args.work))
                clock.span("wait", coming.wait)
            report.log(me, "box", way=way, early=early, late=box[0])


if __name__ == "__main__":
    main()
