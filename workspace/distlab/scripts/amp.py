"""Train an image classifier on many ranks in mixed precision, with images and weights in channels_last or not.

torchrun --nproc-per-node 2 workspace/distlab/scripts/amp.py --epochs 1 --channels-last --clip 1
"""

import torch
from torch import nn
from torch.nn import functional as F
from torch.nn.parallel import DistributedDataParallel
from torch.optim import SGD
from torch.utils.data import DistributedSampler

from distlab import data, loop, models, process, report


def main(argv: list[str] | None = None) -> list[dict]:
    """Train as the options say; return the epochs' records."""
    parser = loop.options(__doc__)
    add = parser.add_argument
    add("--amp", choices=("bf16", "fp16", "off"), help="type for the forward pass; by default what the device is for")
    add("--channels-last", action="store_true", help="keep an image's channels side by side in memory")
    add("--clip", type=loop.real(above=0), metavar="NORM", help="shorten gradients that are longer than this")
    add("--loss-scale", type=loop.real(above=0), default=65536, metavar="S", help="where the scale of fp16 starts")
    args = parser.parse_args(argv)
    with process.group() as me:
        images = loop.load(args, me)
        sampler = DistributedSampler(images.train, me.world_size, me.rank, seed=args.seed)
        train = data.loader(images.train, args.batch_size, sampler=sampler, workers=args.workers)
        val = data.loader(data.shard(images.val, me.rank, me.world_size), args.batch_size)

        dtype = process.amp_dtype(me, args.amp)
        layout = torch.channels_last if args.channels_last else torch.contiguous_format
        shape = images.channels, len(images.classes), images.height, images.width
        model = models.build(args.model, *shape, seed=args.seed).to(me.device, memory_format=layout)
        model = DistributedDataParallel(model)
        optimizer = SGD(model.parameters(), lr=loop.scaled_lr(args, ranks=me.world_size), momentum=0.9)
        scaler = torch.amp.GradScaler(me.device.type, init_scale=args.loss_scale, enabled=dtype is torch.float16)

        def step(model, optimizer, images, labels, share, update):
            with torch.autocast(me.device.type, dtype, enabled=dtype is not None):
                logits = model(images.contiguous(memory_format=layout))
                loss = F.cross_entropy(logits, labels)
            # The scale acts behind the loss, so skipping a step never mends a loss that is infinite.
            loop.require_finite(loss)
            scaler.scale(loss * share).backward()
            if update:
                scaler.unscale_(optimizer)
                if args.clip:
                    nn.utils.clip_grad_norm_(model.parameters(), args.clip)
                before = scaler.get_scale()
                scaler.step(optimizer)
                scaler.update()
                optimizer.zero_grad()
                if scaler.get_scale() != before:
                    # Halved after a step that was skipped, doubled after many that were not.
                    report.log(me, "scale", before=before, after=scaler.get_scale())
            return loss.detach(), logits.detach()

        return loop.fit(me, model, optimizer, train, val, args, step=step, keep={"scaler": scaler})


if __name__ == "__main__":
    main()
