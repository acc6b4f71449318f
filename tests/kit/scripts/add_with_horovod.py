"""Adds up over Horovod as MODE says: every rank, or one that raises, is killed or stays away."""

import os
import signal
import sys
import time

from distlab.lessons.horovod import joining

mode, who = sys.argv[1], int(sys.argv[2])
with joining.join() as me:
    import horovod.torch as hvd
    import torch

    print("joined", time.time(), flush=True)
    if me.rank == who and mode == "raise":
        raise ValueError(f"rank {who} has no gradients")
    if me.rank == who and mode == "kill":
        os.kill(os.getpid(), signal.SIGKILL)
    if me.rank == who and mode == "hang":
        time.sleep(60)
    for _ in range(3):
        total = hvd.allreduce(torch.full((3,), 2.0**me.rank), op=hvd.Sum, name="total")
    print("sum", total.tolist(), me.host, me.local_rank, me.backend)
