"""The drill by hand: four terminals, two hosts, one job.

    node1$ python ddp_tutorial.py 0 0        node2$ python ddp_tutorial.py 2 0
    node1$ python ddp_tutorial.py 1 1        node2$ python ddp_tutorial.py 3 1

Each command is one rank. What a launcher does for you is done here by hand: telling every
process who it is and where rank 0 waits. All four commands work on one machine, too.
"""

import argparse
import os
import socket


def set_variables(rank: int, gpu: int) -> None:
    """Set what torchrun would set for this rank; a variable that is set already stays.

    WORLD_SIZE is 4 and rank 0 waits on node1, port 29500, unless the environment says otherwise.
    """
    world_size = os.environ.setdefault("WORLD_SIZE", "4")
    if not (world_size.isdigit() and rank < int(world_size)):
        raise SystemExit(f"rank {rank} lies outside WORLD_SIZE={world_size}: ranks count from 0, WORLD_SIZE counts all")
    on_this_host = os.environ.setdefault("LOCAL_WORLD_SIZE", str(max(gpu + 1, min(2, int(world_size)))))
    os.environ["RANK"], os.environ["LOCAL_RANK"] = str(rank), str(gpu)
    os.environ.setdefault("MASTER_PORT", "29500")
    os.environ.setdefault("OMP_NUM_THREADS", str(max(1, (os.cpu_count() or 1) // int(on_this_host))))
    if "MASTER_ADDR" not in os.environ:
        os.environ["MASTER_ADDR"] = "node1"
        try:
            socket.getaddrinfo("node1", None)
        except OSError:
            os.environ["MASTER_ADDR"] = "127.0.0.1"
            print("node1 is no name here, so rank 0 is expected on this machine (or set MASTER_ADDR)", flush=True)


def train(steps: int, name: str) -> None:
    """Join the other ranks, train a few steps together, and let each rank say what it did."""
    # torch reads OMP_NUM_THREADS when it is imported, so only now.
    import torch
    from distlab import data, models, process
    from torch.nn import functional as F
    from torch.nn.parallel import DistributedDataParallel
    from torch.utils.data import DistributedSampler

    with process.group() as me:
        images = data.load(name, limit=4096, me=me)
        batches = data.loader(images.train, 64, sampler=DistributedSampler(images.train, me.world_size, me.rank))
        model = models.build("small-cnn", images.channels, len(images.classes), images.height, images.width)
        model = DistributedDataParallel(model.to(me.device))
        optimizer = torch.optim.SGD(model.parameters(), lr=0.05)

        seen, losses = 0, []
        for _, (inputs, labels) in zip(range(steps), batches, strict=False):
            loss = F.cross_entropy(model(inputs.to(me.device)), labels.to(me.device))
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
            seen += len(labels)
            losses.append(loss.item())

        weights = sum(parameter.double().sum().item() for parameter in model.parameters())
        me.print_in_order(
            f"rank {me.rank} of {me.world_size} on {me.host}, {me.device}: {len(losses)} steps, {seen} images, "
            f"loss {losses[0]:.3f} to {losses[-1]:.3f}, sum of weights {weights:.6f}"
        )
        me.print("The losses differ, since every rank has images of its own; the weights are the same.")


def main(argv: list[str] | None = None) -> None:
    """Be one rank of the drill."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("rank", metavar="RANK", type=int, help="which rank this is, 0 to WORLD_SIZE - 1")
    parser.add_argument("gpu", metavar="GPU", type=int, help="which GPU of this host; without any it counts ranks")
    parser.add_argument("--steps", type=int, default=16, help="how many to train")
    parser.add_argument("--data", default="fashion-mnist", help="name of a data set")
    args = parser.parse_args(argv)
    if args.rank < 0 or args.gpu < 0 or args.steps < 1:
        parser.error("RANK and GPU count from 0, --steps from 1")
    set_variables(args.rank, args.gpu)
    train(args.steps, args.data)


if __name__ == "__main__":
    main()
