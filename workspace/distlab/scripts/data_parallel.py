"""Train an image classifier in one process, on several devices with DataParallel.

python workspace/distlab/scripts/data_parallel.py --epochs 1
"""

from torch.optim import SGD

from distlab import data, loop, models, process, replicas


def main(argv: list[str] | None = None) -> list[dict]:
    """Train as the options say; return the epochs' records."""
    args = loop.options(__doc__).parse_args(argv)
    with process.alone() as me:
        images = loop.load(args, me)
        sampler = loop.Shuffle(images.train, seed=args.seed)
        train = data.loader(images.train, args.batch_size, sampler=sampler, workers=args.workers)
        val = data.loader(images.val, args.batch_size)

        shape = images.channels, len(images.classes), images.height, images.width
        model = models.build(args.model, *shape, seed=args.seed).to(me.device)
        model = replicas.data_parallel(model, me)
        optimizer = SGD(model.parameters(), lr=loop.scaled_lr(args, ranks=1), momentum=0.9)

        return loop.fit(me, model, optimizer, train, val, args)


if __name__ == "__main__":
    main()
