"""Train an image classifier on many ranks with Horovod.

horovodrun -np 2 python workspace/distlab/scripts/horovod_ddp.py --epochs 1
"""

from torch.optim import SGD
from torch.utils.data import DistributedSampler

from distlab import data, loop, models
from distlab.lessons.horovod import joining, training


def main(argv: list[str] | None = None) -> list[dict]:
    """Train as the options say; return the epochs' records."""
    args = training.options(__doc__).parse_args(argv)
    with joining.join() as me:
        import horovod.torch as hvd

        images = loop.load(args, me)
        sampler = DistributedSampler(images.train, hvd.size(), hvd.rank(), seed=args.seed)
        train = data.loader(images.train, args.batch_size, sampler=sampler, workers=args.workers)
        val = data.loader(data.shard(images.val, hvd.rank(), hvd.size()), args.batch_size)

        shape = images.channels, len(images.classes), images.height, images.width
        model = models.build(args.model, *shape, seed=args.seed).to(me.device)
        optimizer = SGD(model.parameters(), lr=loop.scaled_lr(args, ranks=hvd.size()), momentum=0.9)
        optimizer = hvd.DistributedOptimizer(optimizer, model.named_parameters(), **training.combining(args))
        hvd.broadcast_parameters(model.state_dict(), root_rank=0)
        hvd.broadcast_optimizer_state(optimizer, root_rank=0)

        step, sums = training.step(me, args), training.Collectives()
        keep = {"scaler": step.scaler}
        return loop.fit(me, model, optimizer, train, val, args, step=step, collectives=sums, keep=keep)


if __name__ == "__main__":
    main()
