"""Clipping scaled gradients in both orders, beside float32: how long is the gradient that the optimizer gets?"""

import argparse
from copy import deepcopy

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.nn.parallel import DistributedDataParallel
from torch.nn.utils import clip_grad_norm_
from torch.optim import SGD

from distlab import data, models, process, report
from distlab.loop.step import no_sync_unless

SCALE = 2.0**13
# (name, scale of the loss, whether gradients are scaled back before they are clipped)
WAYS = (("float32", None, True), ("unscale, then clip", SCALE, True), ("clip, then unscale", SCALE, False))


def gradient(model: nn.Module) -> Tensor:
    """All gradients in one vector, copied."""
    return torch.cat([parameter.grad.flatten() for parameter in model.parameters()]).clone()


def main() -> None:
    """Run the experiment on this rank. Reports `clipped`."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--norm", type=float, default=0.5, help="clip the gradient's norm to this")
    parser.add_argument("--accumulate", type=int, default=2, help="batches of one update")
    args = parser.parse_args()
    with process.group() as me:
        images = data.load(limit=64 * me.world_size * args.accumulate, me=me)
        mine = data.shard(images.train, me.rank, me.world_size)
        batches = [(x.to(me.device), y.to(me.device)) for x, y in data.loader(mine, 64)]
        shape = images.channels, len(images.classes), images.height, images.width
        first = models.build("mlp", *shape, seed=0).to(me.device)
        exact: Tensor | None = None
        for way, scale, unscale_first in WAYS:
            model = DistributedDataParallel(deepcopy(first))
            optimizer = SGD(model.parameters(), lr=0.1)
            scaler = torch.amp.GradScaler(me.device.type, init_scale=scale or 1.0, enabled=scale is not None)
            for number, (x, y) in enumerate(batches, 1):
                with no_sync_unless(number == len(batches), model):
                    with torch.autocast(me.device.type, torch.float16, enabled=scale is not None):
                        loss = F.cross_entropy(model(x), y) / len(batches)
                    scaler.scale(loss).backward()
            if unscale_first:
                scaler.unscale_(optimizer)
            seen = clip_grad_norm_(model.parameters(), args.norm)
            if not unscale_first:
                scaler.unscale_(optimizer)
            clipped = gradient(model)
            exact = clipped if exact is None else exact
            report.log(
                me,
                "clipped",
                way=way,
                limit=args.norm,
                scale=scale or 1.0,
                seen=seen,
                left=clipped.norm(),
                difference=(clipped - exact).norm() / exact.norm(),
            )


if __name__ == "__main__":
    main()
