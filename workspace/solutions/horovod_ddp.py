"""Solution: four ranks, one training, with Horovod.

run("solutions/horovod_ddp.py", launcher="horovodrun")       # in the notebook: two hosts, two ranks each
check("horovod_ddp", file="solutions/horovod_ddp.py")        # every requirement holds
"""

from pathlib import Path

import horovod.torch as hvd
import torch
from distlab import data, models, runs
from torch.nn.functional import cross_entropy
from torch.utils.data import DataLoader, Dataset, DistributedSampler


def device_for(rank: int, local_rank: int) -> torch.device:
    """Where a rank computes: on a GPU of its own, or on the CPU when its host has none.

    Args:
        rank: counts over all hosts.
        local_rank: counts within the host, as the host's GPUs do.
    """
    if not torch.cuda.is_available():
        return torch.device("cpu")
    return torch.device("cuda", local_rank)


def train(
    dataset: Dataset,
    model: torch.nn.Module,
    state: dict | None,
    epochs: int,
    batch_size: int,
    lr: float,
    scale_lr: bool,
    checkpoint: Path,
) -> float:
    """Train a model on all ranks together, as one process with batches of ranks * batch_size would.

    Every rank calls this with the same samples and with weights of its own. In the end all ranks
    have the weights that rank 0's have become.

    Args:
        dataset: pairs (x, y). Each epoch visits every sample once, on one of the ranks, in a new order.
        state: what the optimizer goes on from; only rank 0 has it, the others get None.
        batch_size: samples in one step of one rank.
        lr: learning rate for the batch of one rank.
        scale_lr: whether to multiply it by the number of ranks.
        checkpoint: the file in which rank 0, and nobody else, saves the model's final state_dict.

    Returns:
        Mean loss of a sample in the last epoch, over all ranks: the same number on each.
    """
    hvd.init()
    rank, local_rank = hvd.rank(), hvd.local_rank()

    device = device_for(rank, local_rank)
    model.to(device)

    sampler = DistributedSampler(dataset, hvd.size(), rank)
    loader = DataLoader(dataset, batch_size, sampler=sampler)

    if scale_lr:
        lr = lr * hvd.size()
    optimizer = torch.optim.SGD([p for p in model.parameters() if p.requires_grad], lr=lr, momentum=0.9)

    optimizer = hvd.DistributedOptimizer(optimizer, model.named_parameters())

    if state is not None:
        optimizer.load_state_dict(state)
        for group in optimizer.param_groups:
            # The state brings the rate of the day on which it was saved.
            group["lr"] = lr

    hvd.broadcast_parameters(model.state_dict(), root_rank=0)
    hvd.broadcast_optimizer_state(optimizer, root_rank=0)

    for epoch in range(epochs):
        sampler.set_epoch(epoch)
        total, count = 0.0, 0
        for x, y in loader:
            x, y = x.to(device), y.to(device)
            optimizer.zero_grad()
            loss = cross_entropy(model(x), y)
            loss.backward()
            optimizer.step()
            total, count = total + loss.item() * len(x), count + len(x)

    sums = torch.tensor([total, count], device=device)
    total, count = hvd.allreduce(sums, op=hvd.Sum, name="sums").tolist()
    mean_loss = total / count

    if rank == 0:
        torch.save(model.state_dict(), checkpoint)

    return mean_loss


def main() -> None:
    """Train a small network on real images; every rank prints the loss that it knows."""
    images = data.load("fashion-mnist", limit=4000)
    shape = images.channels, len(images.classes), images.height, images.width
    # Weights of its own for each rank: whoever forgets to share them will see it.
    model = models.build("mlp", *shape, seed=torch.seed() % 1000)
    checkpoint = (runs.run_folder() or Path()) / "exercise_horovod_ddp.pt"
    how = {"epochs": 2, "batch_size": 50, "lr": 0.02, "scale_lr": True}
    loss = train(images.train, model, state=None, checkpoint=checkpoint, **how)
    print(f"loss in the last epoch: {loss:.4f}")


if __name__ == "__main__":
    main()
