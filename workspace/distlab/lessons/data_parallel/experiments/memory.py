"""What each device holds at the height of a training step, by DataParallel.

Counted from the tensors that each replica really has. Where replicas share a device, that is what
they would hold on devices of their own. On several GPUs the allocator's own peak is reported too.
"""

import argparse

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.optim import SGD

from distlab import models, process, replicas, report
from distlab.measure.kept import size

SHAPE = 1, 10, 28, 28


class ReplicaTensors:
    """The tensors that each replica makes or is given in a forward pass."""

    def __init__(self, wrapped: nn.DataParallel) -> None:
        self.owner = replicas.follow(wrapped)
        self.pieces: dict[int, int] = {}
        self.weights: dict[int, list[Tensor]] = {}
        self.made: dict[int, list[Tensor]] = {}
        wrapped.module.register_forward_pre_hook(self.start)
        for layer in wrapped.module.modules():
            if not list(layer.children()):
                layer.register_forward_hook(self.layer)

    def start(self, replica: nn.Module, given: tuple[Tensor]) -> None:
        """A hook of the whole model."""
        held = [tensor for layer in replica.modules() for tensor in vars(layer).values() if isinstance(tensor, Tensor)]
        number = self.owner[replica]
        self.pieces[number], self.weights[number], self.made[number] = given[0].nbytes, held, []

    def layer(self, layer: nn.Module, given: tuple[Tensor], output: Tensor) -> None:
        """A hook of each layer. What is only a view of what it was given takes no memory."""
        if output.untyped_storage().data_ptr() != given[0].untyped_storage().data_ptr():
            self.made[self.owner[layer]].append(output)


def main() -> None:
    """Run the experiment on this rank. Reports `memory`."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", default="mlp", choices=models.names())
    parser.add_argument("--batch-size", type=int, default=256, help="samples of all replicas together")
    parser.add_argument("--replicas", type=int, default=4)
    args = parser.parse_args()
    with process.alone() as me:
        devices = me.devices(args.replicas)
        wrapped = replicas.wrap(models.build(args.model, *SHAPE).to(me.device), devices)
        optimizer = SGD(wrapped.parameters(), lr=0.01, momentum=0.9)
        kept = ReplicaTensors(wrapped)
        inputs = torch.randn(args.batch_size, SHAPE[0], *SHAPE[2:]).to(me.device)
        labels = torch.randint(0, SHAPE[1], (args.batch_size,)).to(me.device)
        # The first step makes the optimizer's state, which the second one finds.
        for _ in range(2):
            outputs = wrapped(inputs)
            F.cross_entropy(outputs, labels).backward()
            optimizer.step()
        own = list(wrapped.parameters())
        state = [
            tensor for entry in optimizer.state.values() for tensor in entry.values() if isinstance(tensor, Tensor)
        ]
        different = len(set(devices)) > 1
        for number, device in enumerate(devices[: len(kept.pieces)]):
            main_device = number == 0
            report.log(
                me,
                "memory",
                replica=number,
                device=str(device),
                bytes={
                    "weights": size(kept.weights[number]),
                    "gradients": size([parameter.grad for parameter in own] if main_device else kept.weights[number]),
                    "optimizer": size(state) if main_device else 0,
                    "batch": size([inputs]) if main_device else kept.pieces[number],
                    "activations": size(kept.made[number]),
                    "gathered": size([outputs]) if main_device else 0,
                },
                measured=torch.cuda.max_memory_allocated(device) if different else None,
            )


if __name__ == "__main__":
    main()
