"""Seconds that an all-reduce takes, by size: allreduce.py torch|horovod KIB ..."""

import statistics
import sys
import time

import torch
import torch.distributed as dist
from distlab import process, report
from distlab.lessons.horovod import joining

WARM, ROUNDS = 3, 15

library, *sizes = sys.argv[1:]
with joining.join() if library == "horovod" else process.group() as me:
    for kib in map(int, sizes):
        tensor = torch.ones(kib * 256, device=me.device)

        def add_up(tensor: torch.Tensor = tensor) -> None:
            """Sum in place over all ranks."""
            if library == "torch":
                dist.all_reduce(tensor)
            else:
                import horovod.torch as hvd

                hvd.allreduce_(tensor, op=hvd.Sum, name="tensor")

        taken = []
        for _ in range(WARM + ROUNDS):
            tensor.fill_(1.0)
            begin = process.now(me.device)
            add_up()
            taken.append(process.now(me.device) - begin)
            time.sleep(0.001)
        assert tensor[0].item() == me.world_size
        report.log(me, "allreduce", kib=kib, seconds=statistics.median(taken[WARM:]))
