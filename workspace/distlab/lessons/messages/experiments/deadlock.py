"""The first round a ring: every rank wants its left neighbour's number. In one order of calls, nobody gets it.

Each rank reports whom it waits for before a call, and that it was served after it.
"""

import argparse
from collections.abc import Callable

import torch
import torch.distributed as dist

from distlab import process, report


class Talker:
    """Messages around the ring, each reported before and after."""

    def __init__(self, me: process.Rank) -> None:
        self.me = me
        self.left, self.right = (me.rank - 1) % me.world_size, (me.rank + 1) % me.world_size
        self.mine = torch.tensor([10.0 * me.rank], device=me.message_device)
        self.box = torch.full_like(self.mine, -1)

    def _call(self, does: str, peers: list[int], call: Callable[[], object]) -> None:
        report.log(self.me, "waits", does=does, peers=peers)
        call()
        if self.mine.device.type == "cuda":
            # NCCL's calls return at once; the device is what waits.
            torch.cuda.synchronize(self.mine.device)
        report.log(self.me, "served", does=does, peers=peers)

    def connect(self) -> None:
        """Make the connections beforehand: over NCCL, the first message of two ranks makes theirs and waits for it."""
        calls = [lambda: dist.send(self.mine, self.right), lambda: dist.recv(self.box.clone(), self.left)]
        for call in calls if self.me.rank % 2 == 0 else reversed(calls):
            call()
        dist.barrier()

    def send(self) -> None:
        """Give my number to the right."""
        self._call("send", [self.right], lambda: dist.send(self.mine, self.right))

    def recv(self) -> None:
        """Take the number of the left."""
        self._call("recv", [self.left], lambda: dist.recv(self.box, self.left))

    def recv_first(self) -> None:
        """All ranks wait for a message before they send theirs."""
        self.recv()
        self.send()

    def send_first(self) -> None:
        """All ranks send before they take: it ends only where a library keeps messages that nobody takes yet."""
        self.send()
        self.recv()

    def odd_even(self) -> None:
        """Even ranks send first, odd ranks take first: in each pair one gives and one takes."""
        if self.me.rank % 2 == 0:
            self.send_first()
        else:
            self.recv_first()

    def isend(self) -> None:
        """Start the send without waiting for it, take, then wait."""
        work = dist.isend(self.mine, self.right)
        self.recv()
        self._call("wait", [self.right], work.wait)

    def batch(self) -> None:
        """Hand over both at once; the library orders them."""
        both = [dist.P2POp(dist.isend, self.mine, self.right), dist.P2POp(dist.irecv, self.box, self.left)]

        def wait() -> None:
            for work in dist.batch_isend_irecv(both):
                work.wait()

        self._call("batch_isend_irecv", [self.right, self.left], wait)


ORDERS = ("recv-first", "send-first", "odd-even", "isend", "batch")


def main() -> None:
    """Run the experiment on this rank. Reports `waits`, `served` and `got`."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--order", choices=ORDERS, default="recv-first")
    args = parser.parse_args()
    with process.group() as me:
        talker = Talker(me)
        talker.connect()
        getattr(talker, args.order.replace("-", "_"))()
        report.log(me, "got", value=talker.box.item(), left=talker.left)


if __name__ == "__main__":
    main()
