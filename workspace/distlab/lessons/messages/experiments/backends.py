"""Which backends this torch has, and which operation each can do with which device's tensors: tried, one by one."""

from collections.abc import Callable
from datetime import timedelta

import torch
import torch.distributed as dist

from distlab import process, report
from distlab.lessons.messages.experiments.collectives import NAMES, Collectives, attempt

BUILT_IN = {"gloo": dist.is_gloo_available, "nccl": dist.is_nccl_available, "mpi": dist.is_mpi_available}
DEADLINE = timedelta(seconds=20)


def pair(collectives: Collectives) -> None:
    """A message to the next rank of each pair; the last of an odd number of ranks has no partner."""
    me, tensor = collectives.me, collectives.own(1)
    partner = me.rank ^ 1
    if partner < me.world_size:
        call = dist.send if me.rank % 2 == 0 else dist.recv
        call(tensor, partner, group=collectives.group)


def from_anyone(collectives: Collectives) -> None:
    """Rank 0 receives from any rank; rank 1 sends only once rank 0 was allowed to."""
    pending: list[dist.Work] = []
    taker, box = collectives.me.rank == 0, collectives.own(1)
    refused = attempt(lambda: pending.append(dist.irecv(box, None, group=collectives.group))) if taker else None
    refused = all_refused(refused)
    if refused:
        raise RuntimeError(refused)
    if collectives.me.rank == 1:
        dist.send(box, 0, group=collectives.group)
    for work in pending:
        work.wait()


def operations(collectives: Collectives) -> dict[str, Callable[[], object]]:
    """Name -> a call of it; all ranks must make it."""
    whole = collectives.own(collectives.size)
    bits = torch.ones(1, dtype=torch.int64, device=collectives.device)
    return {
        "send, recv": lambda: pair(collectives),
        "recv from anyone": lambda: from_anyone(collectives),
        **{name: getattr(collectives, name) for name in NAMES},
        "all_reduce AVG": lambda: dist.all_reduce(whole, dist.ReduceOp.AVG, group=collectives.group),
        "all_reduce of bits": lambda: dist.all_reduce(bits, dist.ReduceOp.BXOR, group=collectives.group),
        "barrier": lambda: dist.barrier(group=collectives.group),
    }


def all_refused(refused: str | None) -> str | None:
    """What any rank was told, the same on all: one that goes on while another cannot would wait for ever."""
    told: list = [None] * dist.get_world_size()
    dist.all_gather_object(told, refused)
    return next((refusal for refusal in told if refusal), None)


def probe(me: process.Rank, backend: str, device: torch.device) -> None:
    """Try each operation of a backend on tensors of a device, and report what it says."""
    made: list = []
    refused = all_refused(attempt(lambda: made.append(dist.new_group(backend=backend, timeout=DEADLINE))))
    at = {"backend": backend, "device": device.type}
    if refused:
        report.log(me, "group", **at, refused=refused)
        return
    collectives = Collectives(me, part=1, device=device, group=made[0])
    for name, call in operations(collectives).items():
        refused = all_refused(attempt(call))
        report.log(me, "operation", **at, name=name, refused=refused)


def main() -> None:
    """Run the experiment on this rank. Reports `group`, `operation` and `backend`."""
    with process.group() as me:
        declared = dist.Backend.backend_capability
        for backend, built_in in BUILT_IN.items():
            has = built_in()
            report.log(me, "backend", backend=backend, built_in=has, devices=declared.get(backend, []))
            if not has:
                continue
            for kind in declared[backend]:
                # A rank knows of no other device than its own and the CPU.
                if kind == "cpu" or kind == me.device.type:
                    probe(me, backend, me.device if kind == me.device.type else torch.device(kind))
                else:
                    report.log(me, "group", backend=backend, device=kind, refused=f"no {kind} device here")


if __name__ == "__main__":
    main()
