"""Train an image classifier on many ranks in mixed precision and either memory format.

torchrun --nproc-per-node 2 workspace/distlab/scripts/amp.py --epochs 1 --channels-last --clip 1
"""

import torch
from torch.nn.parallel import DistributedDataParallel
from torch.optim import SGD
from torch.utils.data import DistributedSampler

from distlab import data, loop, models, process


def main(argv: list[str] | None = None) -> list[dict]:
    """Train as the options say; return the epochs' records."""
    parser = loop.options(__doc__)
    add = parser.add_argument
    add("--amp", choices=("bf16", "fp16", "off"), help="autocast dtype; by default the device's")
    add("--channels-last", action="store_true", help="channels-last memory format (NHWC)")
    add("--clip", type=loop.real(above=0), metavar="NORM", help="clip the gradient's norm to this")
    add("--loss-scale", type=loop.real(above=0), default=65536, help="initial loss scale of fp16")
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
        fp16 = dtype is torch.float16
        scaler = torch.amp.GradScaler(me.device.type, init_scale=args.loss_scale, enabled=fp16)
        step = loop.MixedStep(me, dtype, layout, scaler, args.clip)

        return loop.fit(me, model, optimizer, train, val, args, step=step, keep={"scaler": scaler})


if __name__ == "__main__":
    main()
