"""Images per second of the lesson's network, and of the same steps without any communication."""

import argparse
import itertools
import os
import socket
import time

import torch
import torch.distributed as dist
from torch.nn import functional as F
from torch.nn.parallel import DistributedDataParallel
from torch.optim import SGD
from torch.utils.data import DistributedSampler

from distlab import data, models, process, report

WARM_UP = 3


def processors(me: process.Rank) -> list[str]:
    """Names of the cores this rank may use, or of its GPU: what ranks on one machine share."""
    if me.device.type == "cuda":
        return [f"GPU {torch.cuda.get_device_properties(me.device).uuid}"]
    # Simulated hosts are one machine and share its cores, whatever they are called.
    return [f"{socket.gethostname()} core {core}" for core in sorted(os.sched_getaffinity(0))]


def main() -> None:
    """Run the experiment on this rank. Reports `speed`."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=6, help="timed steps, of each kind")
    parser.add_argument("--batch-size", type=int, default=64, help="samples of one rank")
    parser.add_argument("--rounds", type=int, default=4, help="how often to time both kinds")
    args = parser.parse_args()
    with process.group() as me:
        images = data.load(limit=args.batch_size * me.world_size * 8, me=me)
        sampler = DistributedSampler(images.train, me.world_size, me.rank)
        batches = itertools.cycle(data.loader(images.train, args.batch_size, sampler=sampler))
        shape = images.channels, len(images.classes), images.height, images.width
        model = DistributedDataParallel(models.build(models.DEFAULT, *shape, seed=0).to(me.device))
        optimizer = SGD(model.parameters(), lr=0.01)

        def step() -> None:
            inputs, labels = next(batches)
            F.cross_entropy(model(inputs.to(me.device)), labels.to(me.device)).backward()
            optimizer.step()
            optimizer.zero_grad()

        def timed() -> float:
            dist.barrier()
            start = time.perf_counter()
            for _ in range(args.steps):
                step()
            if me.device.type == "cuda":
                torch.cuda.synchronize()
            return args.steps * args.batch_size / (time.perf_counter() - start)

        for _ in range(WARM_UP):
            step()
        talking, silent = [], []
        for _ in range(args.rounds):
            talking.append(timed())
            with model.no_sync():
                silent.append(timed())
        report.log(
            me,
            "speed",
            world_size=me.world_size,
            processors=processors(me),
            images_per_second=talking,
            images_per_second_silent=silent,
        )


if __name__ == "__main__":
    main()
