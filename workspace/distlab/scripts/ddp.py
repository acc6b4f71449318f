"""Train an image classifier on many ranks with DistributedDataParallel.

torchrun --nproc-per-node 2 workspace/distlab/scripts/ddp.py --epochs 1
"""

from torch.nn.parallel import DistributedDataParallel
from torch.optim import SGD
from torch.utils.data import DistributedSampler

from distlab import data, loop, models, process


def main(argv: list[str] | None = None) -> list[dict]:
    """Train as the options say; return the epochs' records."""
    args = loop.options(__doc__).parse_args(argv)
    with process.group() as me:
        images = loop.load(args, me)
        sampler = DistributedSampler(images.train, me.world_size, me.rank, seed=args.seed)
        train = data.loader(images.train, args.batch_size, sampler=sampler, workers=args.workers)
        val = data.loader(data.shard(images.val, me.rank, me.world_size), args.batch_size)

        shape = images.channels, len(images.classes), images.height, images.width
        model = models.build(args.model, *shape, seed=args.seed).to(me.device)
        model = DistributedDataParallel(model)
        optimizer = SGD(model.parameters(), lr=loop.scaled_lr(args, ranks=me.world_size), momentum=0.9)

        return loop.fit(me, model, optimizer, train, val, args)


if __name__ == "__main__":
    main()
