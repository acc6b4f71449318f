"""A loss scale that grows, overflows and backs off; and one batch on one rank that nobody divided by 255."""

import argparse
import itertools

import torch
from torch import Tensor, nn
from torch.distributed import GradBucket
from torch.distributed.algorithms.ddp_comm_hooks.default_hooks import allreduce_hook
from torch.nn import functional as F
from torch.nn.parallel import DistributedDataParallel
from torch.optim import SGD
from torch.utils.data import DistributedSampler

from distlab import data, models, process, report

# What a pixel is multiplied by when bytes are not divided into numbers from 0 to 1.
BRIGHTER = 255


def watching_hook(finite: list[bool], bucket: GradBucket) -> torch.futures.Future[Tensor]:
    """DDP's own all-reduce; before it, this rank's own gradients are looked at."""
    finite.append(bool(bucket.buffer().isfinite().all()))
    return allreduce_hook(None, bucket)


def flat(model: nn.Module) -> Tensor:
    """All weights in one vector, copied."""
    return torch.cat([parameter.detach().flatten() for parameter in model.parameters()]).clone()


def main() -> None:
    """Run the experiment on this rank. Reports `scaled`."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=60)
    parser.add_argument("--bright-step", type=int, default=8, help="in this update, from 1 on ...")
    parser.add_argument("--bright-rank", type=int, default=2, help="... this rank has a batch far too bright")
    parser.add_argument("--init-scale", type=float, default=2.0**13)
    parser.add_argument("--growth-interval", type=int, default=5, help="good updates before the scale is doubled")
    args = parser.parse_args()
    with process.group() as me:
        images = data.load(limit=64 * me.world_size * 16, me=me)
        sampler = DistributedSampler(images.train, me.world_size, me.rank, seed=0)
        batches = itertools.cycle(data.loader(images.train, 64, sampler=sampler))
        shape = images.channels, len(images.classes), images.height, images.width
        finite: list[bool] = []
        model = DistributedDataParallel(models.build("mlp", *shape, seed=0).to(me.device))
        model.register_comm_hook(finite, watching_hook)
        optimizer = SGD(model.parameters(), lr=0.05, momentum=0.9)
        scaler = torch.amp.GradScaler(me.device.type, init_scale=args.init_scale, growth_interval=args.growth_interval)
        for number in range(1, args.steps + 1):
            x, y = (tensor.to(me.device) for tensor in next(batches))
            if (number, me.rank) == (args.bright_step, args.bright_rank):
                x = x * BRIGHTER
            finite.clear()
            with torch.autocast(me.device.type, torch.float16):
                loss = F.cross_entropy(model(x), y)
            scaler.scale(loss).backward()
            before, scale = flat(model), scaler.get_scale()
            scaler.step(optimizer)
            scaler.update()
            optimizer.zero_grad()
            report.log(
                me,
                "scaled",
                step=number,
                loss=loss,
                scale=scale,
                next_scale=scaler.get_scale(),
                own_finite=all(finite),
                moved=not torch.equal(before, flat(model)),
            )


if __name__ == "__main__":
    main()
