"""Which samples each rank holds, epoch by epoch, without and with set_epoch."""

import argparse

from torch.utils.data import DistributedSampler

from distlab import process, report


def main() -> None:
    """Run the experiment on this rank. Reports `shard`."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--samples", type=int, default=30)
    parser.add_argument("--epochs", type=int, default=3)
    args = parser.parse_args()
    with process.group() as me:
        for set_epoch in (False, True):
            sampler = DistributedSampler(range(args.samples), me.world_size, me.rank, seed=0)  # type: ignore[arg-type]  # its length is enough
            for epoch in range(args.epochs):
                if set_epoch:
                    sampler.set_epoch(epoch)
                report.log(me, "shard", epoch=epoch, set_epoch=set_epoch, samples=list(sampler))


if __name__ == "__main__":
    main()
