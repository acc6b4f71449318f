"""Solution: four ranks, one training.

run("solutions/ddp.py")                         # in the notebook: two hosts, two ranks each
check("ddp", file="solutions/ddp.py")           # every requirement holds
"""

import os
from pathlib import Path

import torch
import torch.distributed as dist
from distlab import data, models, runs
from torch.nn.functional import cross_entropy
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, Dataset, DistributedSampler


def device_for(rank: int, local_rank: int) -> torch.device:
    """Where a rank computes: on a GPU of its own, or on the CPU when its host has too few.

    Args:
        rank: counts over all hosts.
        local_rank: counts within the host, as the host's GPUs do.
    """
    if torch.cuda.device_count() < int(os.environ.get("LOCAL_WORLD_SIZE", 1)):
        return torch.device("cpu")
    return torch.device("cuda", local_rank)


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

    dist.init_process_group()

    device = device_for(rank, local_rank)
    model.to(device)

    sampler = DistributedSampler(dataset)
    loader = DataLoader(dataset, batch_size, sampler=sampler)

    wrapped = DistributedDataParallel(model)
    optimizer = torch.optim.SGD([p for p in model.parameters() if p.requires_grad], lr=lr)

    for epoch in range(epochs):
        sampler.set_epoch(epoch)
        total, count = 0.0, 0
        for x, y in loader:
            x, y = x.to(device), y.to(device)
            loss = cross_entropy(wrapped(x), y)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            total, count = total + loss.item() * len(x), count + len(x)

    sums = torch.tensor([total, count], device=device)
    dist.all_reduce(sums)
    total, count = sums.tolist()
    mean_loss = total / count

    if rank == 0:
        torch.save(model.state_dict(), checkpoint)

    dist.destroy_process_group()
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
