"""Exercise: four ranks, one training.

run("exercises/ddp.py")     # in the notebook: two hosts, two ranks each
check("ddp")                # says what is missing, one step at a time

As it stands, each rank trains a model of its own on all the samples, and all write the same file.
The TODOs are numbered in the order in which to do them.
"""

import os
from pathlib import Path

import torch
from distlab import data, models, runs
from torch.nn.functional import cross_entropy
from torch.utils.data import DataLoader, Dataset


def device_for(rank: int, local_rank: int) -> torch.device:
    """Where a rank computes: on a GPU of its own, or on the CPU when its host has too few.

    Args:
        rank: counts over all hosts.
        local_rank: counts within the host, as the host's GPUs do.
    """
    if torch.cuda.device_count() < int(os.environ.get("LOCAL_WORLD_SIZE", 1)):
        return torch.device("cpu")
    # TODO 2: this is the first GPU of the host. Give each of its ranks another one.
    return torch.device("cuda", 0)


def train(dataset: Dataset, model: torch.nn.Module, epochs: int, batch_size: int, lr: float, checkpoint: Path) -> float:
    """Train a model on all ranks together, as one process with batches of ranks * batch_size would.

    Every rank calls this with the same samples and with weights of its own. In the end all ranks
    have the same weights.

    Args:
        dataset: pairs (x, y). Each epoch visits every sample once, on one of the ranks, in a new order.
        batch_size: samples in one step of one rank.
        lr: learning rate, used as it is.
        checkpoint: the file in which rank 0, and nobody else, saves the model's final state_dict. A plain
            model can load it.

    Returns:
        Mean loss of a sample in the last epoch, over all ranks: the same number on each.
    """
    rank, local_rank = int(os.environ.get("RANK", 0)), int(os.environ.get("LOCAL_RANK", 0))

    # TODO 1: join the other ranks in a process group (torch.distributed).

    device = device_for(rank, local_rank)  # TODO 2 is up there
    model.to(device)

    # TODO 3: give each rank its own share of the samples (torch.utils.data.DistributedSampler).
    loader = DataLoader(dataset, batch_size, shuffle=True)

    # TODO 4: average gradients over the ranks (torch.nn.parallel.DistributedDataParallel).
    optimizer = torch.optim.SGD([p for p in model.parameters() if p.requires_grad], lr=lr)

    for _ in range(epochs):
        # TODO 5: tell the sampler which epoch this is, so that it shuffles anew.
        total, count = 0.0, 0
        for x, y in loader:
            x, y = x.to(device), y.to(device)
            loss = cross_entropy(model(x), y)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            total, count = total + loss.item() * len(x), count + len(x)

    # TODO 6: these sums are those of one rank. Add them up over all ranks.
    mean_loss = total / count

    # TODO 7: let rank 0 alone write the file.
    torch.save(model.state_dict(), checkpoint)

    # TODO 8: leave the process group.
    return mean_loss


def main() -> None:
    """Train a small network on real images; every rank prints the loss that it knows."""
    rank = int(os.environ.get("RANK", 0))
    images = data.load("fashion-mnist", limit=4000)
    shape = images.channels, len(images.classes), images.height, images.width
    # A seed for each rank: whoever forgets to share weights will see it.
    model = models.build("mlp", *shape, seed=rank)
    checkpoint = (runs.run_folder() or Path()) / "exercise_ddp.pt"
    loss = train(images.train, model, epochs=2, batch_size=50, lr=0.1, checkpoint=checkpoint)
    print(f"loss in the last epoch: {loss:.4f}")


if __name__ == "__main__":
    main()
