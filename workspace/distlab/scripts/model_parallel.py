"""Train a small language model whose layers lie on two devices, in one process.

python workspace/distlab/scripts/model_parallel.py --microbatches 4
"""

from torch.optim import AdamW

from distlab import data, loop, models, process, stages


def main(argv: list[str] | None = None) -> list[dict]:
    """Train as the options say; return the epochs' records."""
    parser = loop.text_options(__doc__)
    parser.add_argument("--microbatches", type=loop.whole(1), default=1, metavar="M", help="per batch")
    args = parser.parse_args(argv)
    with process.alone() as me:
        text = loop.load_text(args, me)
        sampler = loop.Shuffle(text.train, seed=args.seed)
        train = data.loader(text.train, args.batch_size, sampler=sampler, workers=args.workers)
        val = data.loader(text.val, args.batch_size)

        size = args.layers, args.embedding_dim, args.heads, args.context
        model = models.LanguageModel(*size, tied=args.tied, seed=args.seed)
        # Reversed, so that the main device, which has the labels, takes the last stage.
        model = stages.OnDevices(model, me.devices(2)[::-1], args.microbatches)
        optimizer = AdamW(model.parameters(), lr=loop.scaled_lr(args, ranks=1), eps=1e-6)

        epochs = loop.fit(me, model, optimizer, train, val, args)
        me.print(models.generate(model.predict, args.generate, args.context, args.seed))
        return epochs


if __name__ == "__main__":
    main()
