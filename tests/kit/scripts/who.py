"""Prints as JSON what a rank was told about itself, what it sees, and a sum over all ranks."""

import json
import os
import sys

import torch
import torch.distributed as dist
from distlab import process

NAMES = ("RANK", "LOCAL_RANK", "GROUP_RANK", "LOCAL_WORLD_SIZE", "WORLD_SIZE", "GROUP_WORLD_SIZE")

with process.group() as me:
    total = torch.tensor([2.0**me.rank])
    dist.all_reduce(total)
    seen = {name: os.environ.get(name) for name in NAMES}
    seen |= {
        "host": me.host,
        "rank": me.rank,
        "local_rank": me.local_rank,
        "world_size": me.world_size,
        "host_index": me.host_index,
        "device": str(me.device),
        "backend": me.backend,
        "threads": torch.get_num_threads(),
        "omp": os.environ["OMP_NUM_THREADS"],
        "gpus": os.environ.get("CUDA_VISIBLE_DEVICES"),
        "interface": os.environ.get("GLOO_SOCKET_IFNAME"),
        "asked": {name: value for name, value in os.environ.items() if name.startswith("DISTLAB_ASKED")},
        "sum": total.item(),
        "arguments": sys.argv[1:],
        "cwd": os.getcwd(),
        "master": os.environ["MASTER_ADDR"] + ":" + os.environ["MASTER_PORT"],
    }
    print(json.dumps(seen))
