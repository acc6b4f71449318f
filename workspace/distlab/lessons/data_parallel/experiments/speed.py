"""Images per second of the same batch: on one device, on replicas in one process, and on ranks.

Started as one rank it compares one device with replicas; started as several it is DDP, where each
rank has its share of the batch.
"""

import argparse
from collections.abc import Callable

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn import functional as F
from torch.nn.parallel import DistributedDataParallel
from torch.optim import SGD

from distlab import models, process, replicas, report

SHAPE = 1, 10, 28, 28
LAYERS, WIDTH = 60, 32


def small_layers() -> nn.Module:
    """Many layers with next to nothing to compute in each: the interpreter is what is busy."""
    middle = [part for _ in range(LAYERS) for part in (nn.Linear(WIDTH, WIDTH), nn.ReLU())]
    return nn.Sequential(nn.Flatten(), nn.Linear(SHAPE[2] * SHAPE[3], WIDTH), *middle, nn.Linear(WIDTH, SHAPE[1]))


NETS: dict[str, Callable[[], nn.Module]] = {
    "convolutions": lambda: models.build("small-cnn", *SHAPE),
    "small layers": small_layers,
}


class Case:
    """A model, how it is spread and how many cores it has, with what was measured of it."""

    def __init__(self, me: process.Rank, kind: str, net: str, number: int, threads: int) -> None:
        self.me, self.kind, self.net, self.number, self.threads = me, kind, net, number, threads
        self.speeds: dict[str, list[float]] = {"training": [], "inference": []}
        model = NETS[net]().to(me.device)
        if kind == "replicas":
            model = replicas.wrap(model, me.devices(number))
        elif kind == "ranks":
            model = DistributedDataParallel(model)
        self.model, self.optimizer = model, SGD(model.parameters(), lr=0.01)

    def train(self, inputs: Tensor, labels: Tensor) -> None:
        """One training step."""
        F.cross_entropy(self.model(inputs), labels).backward()
        self.optimizer.step()
        self.optimizer.zero_grad()

    @torch.no_grad()
    def infer(self, inputs: Tensor, labels: Tensor) -> None:
        """One forward pass."""
        self.model(inputs)

    def measure(self, inputs: Tensor, labels: Tensor, steps: int) -> None:
        """Time some steps of both, of all ranks together."""
        with process.threads(self.threads):
            for name, step in (("training", self.train), ("inference", self.infer)):
                step(inputs, labels)
                if dist.get_world_size() > 1:
                    dist.barrier()
                start = replicas.now(self.me.device)
                for _ in range(steps):
                    step(inputs, labels)
                taken = replicas.now(self.me.device) - start
                self.speeds[name].append(steps * len(inputs) / taken)


def plan(me: process.Rank, have: int) -> list[tuple[str, int, int]]:
    """What to compare, as (kind, how many devices, cores for all of them together)."""
    if me.world_size > 1:
        return [("ranks", me.world_size, 1)]
    if me.device.type == "cuda":
        return [("device", 1, 1), *(("replicas", number, 1) for number in (2, 4) if number <= len(me.devices()))]
    alone = [("device", 1, 1), ("device", 1, have)] if have > 1 else [("device", 1, 1)]
    return [*alone, *(("replicas", number, min(number, have)) for number in (2, 4))]


def main() -> None:
    """Run the experiment on this rank. Reports `speed`."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--batch-size", type=int, default=256, help="samples of all devices together")
    parser.add_argument("--steps", type=int, default=2, help="timed steps, of each kind")
    parser.add_argument("--rounds", type=int, default=3, help="how often to time each kind")
    args = parser.parse_args()
    with process.group() as me:
        have = torch.get_num_threads()
        size = args.batch_size // me.world_size
        inputs = torch.randn(size, SHAPE[0], *SHAPE[2:], device=me.device)
        labels = torch.randint(0, SHAPE[1], (size,), device=me.device)
        cases = [Case(me, kind, net, *of) for net in NETS for kind, *of in plan(me, have)]
        for _ in range(args.rounds):
            for case in cases:
                case.measure(inputs, labels, args.steps)
        for case in cases:
            report.log(
                me,
                "speed",
                kind=case.kind,
                net=case.net,
                devices=case.number,
                threads=case.threads * me.world_size,
                device=me.device.type,
                images_per_second=case.speeds,
            )


if __name__ == "__main__":
    main()
