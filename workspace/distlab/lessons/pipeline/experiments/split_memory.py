"""What one training step of the language model needs memory for: the whole model, and each stage of two.

Activations are what forward keeps for backward, each storage counted once. On a GPU the allocator's
own peak is reported too.
"""

import argparse
from collections.abc import Sequence

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.optim import AdamW, Optimizer

from distlab import process, report
from distlab.lessons.pipeline.case import options, text, whole
from distlab.measure.kept import Alive, size
from distlab.stages.devices import OnDevices

STAGES = 2


def step(stages: Sequence[nn.Module], optimizer: Optimizer, batch: Tensor, labels: Tensor) -> list[Alive]:
    """Forward, backward and update; what the forward of each stage, the loss with the last, kept at most.

    Args:
        stages: in order, each on its device; the whole model is a single one.
    """
    watched, x = [Alive(stage.parameters()) for stage in stages], batch
    for stage, alive in zip(stages, watched, strict=True):
        x = x.to(next(stage.parameters()).device)
        with alive:
            x = stage(x)
    with watched[-1]:
        loss = F.cross_entropy(x, labels.to(x.device))
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    return watched


def state(optimizer: Optimizer, own: Sequence[nn.Parameter]) -> list[Tensor]:
    """The tensors that an optimizer keeps for some parameters."""
    return [tensor for parameter in own for tensor in optimizer.state[parameter].values() if isinstance(tensor, Tensor)]


def measure(me: process.Rank, args: argparse.Namespace, batch_size: int, devices: Sequence[torch.device]) -> None:
    """Report an event `memory` for each stage of a model that has one on each of the devices."""
    different = len(set(devices)) == len(devices) and devices[0].type == "cuda"
    before = [torch.cuda.memory_allocated(device) if different else 0 for device in devices]
    language = whole(me, args)
    batch, labels = text(me, language, batch_size)
    batch, labels = batch.to(devices[0]), labels.to(devices[-1])
    model = OnDevices(language, devices)
    optimizer = AdamW(model.parameters())
    # The first step makes the optimizer's state, which the second one finds.
    step(model.stages, optimizer, batch, labels)
    for device in devices if different else ():
        torch.cuda.reset_peak_memory_stats(device)
    watched = step(model.stages, optimizer, batch, labels)
    for number, (stage, alive, device) in enumerate(zip(model.stages, watched, devices, strict=True)):
        own = list(stage.parameters())
        report.log(
            me,
            "memory",
            layers=args.layers,
            width=language.embedding_dim,
            context=batch.shape[1],
            batch_size=batch_size,
            stage=number,
            stages=len(devices),
            has=[name for name, part in stage.named_children() if name != "blocks"],
            blocks=[int(name) for name in stage.blocks],
            device=str(device),
            bytes={
                "parameters": size(own),
                "gradients": size(parameter.grad for parameter in own),
                "optimizer": size(state(optimizer, own)),
                "activations": alive.most,
            },
            measured=torch.cuda.max_memory_allocated(device) - before[number] if different else None,
        )


def main() -> None:
    """Run the experiment on this rank. Reports `memory`."""
    parser = options(__doc__, width=64)
    parser.add_argument("--batch-sizes", type=int, nargs="+", default=[8, 16, 32, 64])
    args = parser.parse_args()
    with process.alone() as me:
        for batch_size in args.batch_sizes:
            measure(me, args, batch_size, [me.device])
            measure(me, args, batch_size, me.devices(STAGES)[::-1])


if __name__ == "__main__":
    main()
