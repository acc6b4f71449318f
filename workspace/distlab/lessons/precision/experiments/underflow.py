"""How small gradients are, and how many of them float16 turns into zero, with and without loss scaling.

A network is trained for a few epochs. Then the same batch goes backward in float32 and in other
types, and gradients are compared one by one.
"""

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.nn.parallel import DistributedDataParallel
from torch.optim import SGD
from torch.utils.data import DistributedSampler

from distlab import data, loop, models, process, report

SCALE = 2.0**16
# (name, type or None for float32, scale of the loss)
WAYS = (("fp16", torch.float16, 1.0), ("fp16, loss x 65536", torch.float16, SCALE), ("bf16", torch.bfloat16, 1.0))


def gradients(
    model: nn.Module, images: Tensor, labels: Tensor, dtype: torch.dtype | None, scale: float
) -> dict[str, Tensor]:
    """Gradients of the mean loss by 'outputs' of layers and by 'weights', each one vector, scaled back in float32."""
    outputs: list[Tensor] = []

    def keep(layer: nn.Module, inputs: tuple[Tensor, ...], output: Tensor) -> None:
        output.retain_grad()
        outputs.append(output)

    hooks = [layer.register_forward_hook(keep) for layer in model.modules() if isinstance(layer, nn.Linear)]
    model.zero_grad()
    with torch.autocast(images.device.type, dtype, enabled=dtype is not None):
        loss = F.cross_entropy(model(images), labels)
    (loss * scale).backward()
    for hook in hooks:
        hook.remove()
    found: dict[str, list] = {"outputs": outputs, "weights": list(model.parameters())}
    return {
        kind: torch.cat([parameter.grad.float().flatten() for parameter in ones]) / scale
        for kind, ones in found.items()
    }


def lost(exact: Tensor, other: Tensor) -> float:
    """The share of gradients that are zero in `other` and not in `exact`."""
    there = exact != 0
    return ((other == 0) & there).sum().item() / there.sum().item()


def histogram(gradient: Tensor) -> dict[str, int]:
    """How many gradients lie between 2^n and 2^(n+1), by n; zeros are left out."""
    powers = gradient[gradient != 0].abs().log2().floor().int()
    values, counts = powers.unique(return_counts=True)
    return {str(power): count for power, count in zip(values.tolist(), counts.tolist(), strict=True)}


def main() -> None:
    """Run the experiment on this rank. Reports `sizes` and `lost`."""
    parser = loop.options(__doc__)
    parser.set_defaults(model="mlp", epochs=6, limit=4000, lr=0.1, lr_scaling=False, warmup_epochs=0, checkpoint=False)
    args = parser.parse_args()
    with process.group() as me:
        images = loop.load(args, me)
        sampler = DistributedSampler(images.train, me.world_size, me.rank, seed=args.seed)
        batches = data.loader(images.train, args.batch_size, sampler=sampler)
        val = data.loader(data.shard(images.val, me.rank, me.world_size), args.batch_size)
        shape = images.channels, len(images.classes), images.height, images.width
        net = models.build(args.model, *shape, seed=args.seed).to(me.device)
        model = DistributedDataParallel(net)
        optimizer = SGD(model.parameters(), lr=args.lr, momentum=0.9)
        loop.fit(me, model, optimizer, batches, val, args)

        x, y = (tensor.to(me.device) for tensor in next(iter(batches)))
        # Called without the DDP wrapper: each rank looks at its own gradients, not at the average.
        exact = gradients(net, x, y, None, 1.0)
        for kind, gradient in exact.items():
            report.log(me, "sizes", kind=kind, histogram=histogram(gradient))
        for name, dtype, scale in WAYS:
            other = gradients(net, x, y, dtype, scale)
            report.log(me, "lost", way=name, scale=scale, **{kind: lost(exact[kind], other[kind]) for kind in exact})


if __name__ == "__main__":
    main()
