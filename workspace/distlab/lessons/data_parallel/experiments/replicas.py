"""What becomes of what a model writes down in forward, on one device and by DataParallel."""

import argparse

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.optim import SGD

from distlab import process, replicas, report


class Counting(nn.Module):
    """A linear layer that counts its calls and its samples in three ways."""

    replaced: Tensor
    added_to: Tensor

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.linear = nn.Linear(8, 4)
        self.calls = 0
        self.register_buffer("replaced", torch.tensor(0))
        self.register_buffer("added_to", torch.tensor(0))

    def forward(self, inputs: Tensor) -> Tensor:
        """Samples through the layer, counted in three ways."""
        self.calls = self.calls + 1
        self.replaced = self.replaced + len(inputs)
        self.added_to += len(inputs)
        return self.linear(inputs)


class Normalised(nn.Module):
    """A linear layer behind batch normalisation."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.norm = nn.BatchNorm1d(8)
        self.linear = nn.Linear(8, 4)

    def forward(self, inputs: Tensor) -> Tensor:
        """Samples, normalised over their batch, through the layer."""
        return self.linear(self.norm(inputs))


def count(me: process.Rank, devices: list[torch.device], inputs: Tensor, labels: Tensor, steps: int) -> None:
    """Train a few steps; report what the model knows of them afterwards."""
    bare = Counting().to(me.device)
    model = replicas.wrap(bare, devices) if devices else bare
    optimizer = SGD(model.parameters(), lr=0.1)
    seen: list[dict] = []

    def look(replica: Counting, given: tuple[Tensor]) -> None:
        current = torch.equal(replica.linear.weight.to(me.device), bare.linear.weight)
        seen.append({"calls": replica.calls, "current": current, "object": id(replica)})

    bare.register_forward_pre_hook(look)
    for _ in range(steps):
        F.cross_entropy(model(inputs), labels).backward()
        optimizer.step()
        optimizer.zero_grad()
    report.log(
        me,
        "kept",
        replicas=len(devices),
        steps=steps,
        samples=len(inputs),
        forwards=len(seen),
        calls_at_start=sorted({record["calls"] for record in seen}),
        weights_current=all(record["current"] for record in seen),
        calls=bare.calls,
        replaced=bare.replaced,
        added_to=bare.added_to,
    )


def main() -> None:
    """Run the experiment on this rank. Reports `kept` and `normalised`."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--replicas", type=int, default=4)
    parser.add_argument("--batch-size", type=int, default=32, help="samples of all replicas together")
    parser.add_argument("--steps", type=int, default=3)
    args = parser.parse_args()
    with process.alone() as me:
        devices = me.devices(args.replicas)
        dice = torch.Generator().manual_seed(1)
        inputs = torch.randn(args.batch_size, 8, generator=dice).to(me.device)
        labels = torch.randint(0, 4, (args.batch_size,), generator=dice).to(me.device)
        for used in ([], devices):
            count(me, used, inputs, labels, args.steps)

        alone, bare, first_piece = (Normalised().to(me.device) for _ in range(3))
        outputs, together = alone(inputs), replicas.wrap(bare, devices)(inputs)
        first_piece(inputs[: -(-len(inputs) // len(devices))])
        report.log(
            me,
            "normalised",
            difference=((outputs - together).abs().max() / outputs.abs().max()).item(),
            to_whole=(bare.norm.running_mean - alone.norm.running_mean).abs().max().item(),
            to_first_piece=(bare.norm.running_mean - first_piece.norm.running_mean).abs().max().item(),
        )


if __name__ == "__main__":
    main()
