"""Train a small language model whose layers lie on many ranks, one stage after the other.

torchrun --nproc-per-node 2 workspace/distlab/scripts/pipeline.py --schedule 1f1b --microbatches 4
"""

from torch.optim import AdamW
from torch.utils.data import DistributedSampler

from distlab import data, loop, models, process, stages


def main(argv: list[str] | None = None) -> list[dict]:
    """Train as the options say; return the epochs' records."""
    args = stages.options(__doc__).parse_args(argv)
    with process.group() as me:
        plan = stages.plan(args, me)
        text = loop.load_text(args, me, readers=plan.replicas)
        sampler = DistributedSampler(text.train, plan.replicas, plan.replica, seed=args.seed)
        train = data.loader(text.train, args.batch_size, sampler=sampler, workers=args.workers)
        val = data.loader(data.shard(text.val, plan.replica, plan.replicas), args.batch_size)

        size = args.layers, args.embedding_dim, args.heads, args.context
        model = models.LanguageModel(*size, tied=args.tied, seed=args.seed)
        model = stages.Pipeline(me, plan, model, args)
        optimizer = AdamW(model.parameters(), lr=loop.scaled_lr(args, ranks=plan.replicas), eps=1e-6)

        ways = {"step": model.step, "collectives": stages.Collectives(model)}
        epochs = loop.fit(me, model, optimizer, train, val, args, **ways)
        me.print(models.generate(model.predict, args.generate, args.context, args.seed))
        return epochs


if __name__ == "__main__":
    main()
