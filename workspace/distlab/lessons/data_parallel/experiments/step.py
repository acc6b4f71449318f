"""One training step by DataParallel: which replica computes which samples, and whether it equals one device.

In float64, so that what remains is rounding and nothing else.
"""

import argparse
from copy import deepcopy

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from distlab import process, replicas, report

FEATURES, CLASSES = 20, 4


def net() -> nn.Module:
    """A small classifier of 20 numbers into 4 classes."""
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(FEATURES, 16), nn.Tanh(), nn.Linear(16, CLASSES)).double()


def step(model: nn.Module, inputs: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
    """Forward, loss and backward; the outputs, and all gradients in one vector."""
    outputs = model(inputs)
    F.cross_entropy(outputs, labels).backward()
    return outputs.detach(), torch.cat([parameter.grad.flatten() for parameter in model.parameters()])


class ReplicaShares:
    """What each replica is given, and its part of the gradient of one weight."""

    def __init__(self, wrapped: nn.DataParallel, inputs: Tensor) -> None:
        self.owner, self.inputs = replicas.follow(wrapped), inputs.cpu()
        self.samples: dict[int, list[int]] = {}
        self.gradients: dict[int, float] = {}
        self.weights: dict[int, int] = {}
        wrapped.module.register_forward_hook(self.forward)

    def forward(self, replica: nn.Module, given: tuple[Tensor], outputs: Tensor) -> None:
        """A hook of the model, called in the thread of each replica. Samples are told by their values."""
        number, weight = self.owner[replica], replica[0].weight
        self.samples[number] = [int((self.inputs == sample).all(1).nonzero()) for sample in given[0].cpu()]
        self.weights[number] = sum(vars(layer)[name].nbytes for layer in replica[::2] for name in ("weight", "bias"))
        weight.register_hook(lambda gradient: self.gradients.update({number: gradient[0, 0].item()}))


def main() -> None:
    """Run the experiment on this rank. Reports `step`."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--batches", type=int, nargs="+", default=[10, 6, 2], help="batch sizes to try")
    parser.add_argument("--replicas", type=int, default=4)
    args = parser.parse_args()
    with process.alone() as me:
        devices = me.devices(args.replicas)
        for size in args.batches:
            dice = torch.Generator().manual_seed(size)
            inputs = torch.randn(size, FEATURES, generator=dice, dtype=torch.float64).to(me.device)
            labels = torch.randint(0, CLASSES, (size,), generator=dice).to(me.device)
            alone, wrapped = net().to(me.device), replicas.wrap(net().to(me.device), devices)
            expected, gradient = step(deepcopy(alone), inputs, labels)
            shares = ReplicaShares(wrapped, inputs)
            outputs, together = step(wrapped, inputs, labels)
            working = range(len(shares.samples))
            report.log(
                me,
                "step",
                batch=size,
                devices=[f"{device}" for device in devices],
                samples=[shares.samples[number] for number in working],
                weight_bytes=[shares.weights[number] for number in working],
                gradients=[shares.gradients[number] for number in working],
                gradient=wrapped.module[0].weight.grad[0, 0].item(),
                output_shape=list(outputs.shape),
                output_difference=(outputs - expected).abs().max().item(),
                gradient_difference=((together - gradient).abs().max() / gradient.abs().max()).item(),
            )


if __name__ == "__main__":
    main()
