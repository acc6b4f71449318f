"""Where the time of a training step goes: on one device, and in each step of DataParallel."""

import argparse

import torch
from torch.nn import functional as F
from torch.optim import SGD

from distlab import models, process, replicas, report

WARM_UP = 3
SHAPE = 1, 10, 28, 28


class Timed:
    """A model that trains on one batch, and takes the time of each part of a step."""

    def __init__(self, me: process.Rank, name: str, batch_size: int, devices: list[torch.device]) -> None:
        self.device, self.devices, self.steps = me.device, devices, []
        self.seconds: dict[str, float] = {}
        self.model = models.build(name, *SHAPE).to(me.device)
        if devices:
            self.model = replicas.wrap(self.model, devices)
            replicas.time_steps(self.model, me.device, self.seconds)
        self.optimizer = SGD(self.model.parameters(), lr=0.01, momentum=0.9)
        dice = torch.Generator().manual_seed(0)
        self.inputs = torch.randn(batch_size, SHAPE[0], *SHAPE[2:], generator=dice).to(me.device)
        self.labels = torch.randint(0, SHAPE[1], (batch_size,), generator=dice).to(me.device)

    def step(self) -> None:
        """One training step, kept with the seconds of its parts."""
        begin = replicas.now(self.device)
        outputs = self.model(self.inputs)
        forward = replicas.now(self.device)
        F.cross_entropy(outputs, self.labels).backward()
        backward = replicas.now(self.device)
        self.optimizer.step()
        self.optimizer.zero_grad()
        done = replicas.now(self.device)
        parts = dict(self.seconds) if self.devices else {"parallel_apply": forward - begin}
        self.steps.append(parts | {"backward": backward - forward, "update": done - backward, "whole": done - begin})


def main() -> None:
    """Run the experiment on this rank. Reports `parts`."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--models", nargs="+", default=["small-cnn", "mlp"], choices=models.names())
    parser.add_argument("--batch-size", type=int, default=64, help="samples of all replicas together")
    parser.add_argument("--steps", type=int, default=20, help="timed steps of each kind")
    args = parser.parse_args()
    with process.alone() as me:
        for name in args.models:
            kinds = [Timed(me, name, args.batch_size, devices) for devices in ([], me.devices())]
            # The two take turns, so other work on the machine disturbs both alike.
            for _ in range(WARM_UP + args.steps):
                for timed in kinds:
                    timed.step()
            for timed in kinds:
                # The quickest step is the one that was disturbed least.
                best = min(timed.steps[WARM_UP:], key=lambda step: step["whole"])
                report.log(
                    me,
                    "parts",
                    model=name,
                    batch_size=args.batch_size,
                    replicas=len(timed.devices),
                    threads=torch.get_num_threads(),
                    device=me.device.type,
                    milliseconds={part: 1000 * seconds for part, seconds in best.items()},
                )


if __name__ == "__main__":
    main()
