"""Exercise: four ranks, one training, with Horovod.

run("exercises/horovod_ddp.py", launcher="horovodrun")     # in the notebook: two hosts, two ranks each
check("horovod_ddp")                                       # says what is missing, one step at a time

As it stands, each rank trains a model of its own on all the samples, and all write the same file.
The TODOs are numbered in the order in which to do them.
"""

from pathlib import Path

import horovod.torch as hvd  # noqa: F401
import torch
from distlab import data, models, runs
from torch.nn.functional import cross_entropy
from torch.utils.data import DataLoader, Dataset


def device_for(rank: int, local_rank: int) -> torch.device:
    """Where a rank computes: on a GPU of its own, or on the CPU when its host has none.

    Args:
        rank: counts over all hosts.
        local_rank: counts within the host, as the host's GPUs do.
    """
    if not torch.cuda.is_available():
        return torch.device("cpu")
    # TODO 2: this is the first GPU of the host. Give each of its ranks another one.
    return torch.device("cuda", 0)


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
    # TODO 1: let Horovod find the other ranks (hvd.init), and ask it for these two.
    rank, local_rank = 0, 0

    device = device_for(rank, local_rank)  # TODO 2 is up there
    model.to(device)

    # TODO 3: give each rank its own share of the samples (torch.utils.data.DistributedSampler, which
    # must be told how many ranks there are and which one this is).
    loader = DataLoader(dataset, batch_size, shuffle=True)

    # TODO 4: multiply lr by the number of ranks, where scale_lr asks for it.
    optimizer = torch.optim.SGD([p for p in model.parameters() if p.requires_grad], lr=lr, momentum=0.9)

    # TODO 5: average gradients over the ranks (hvd.DistributedOptimizer around this optimizer). It starts
    # without a state, so it comes before the next lines.

    if state is not None:
        optimizer.load_state_dict(state)
        for group in optimizer.param_groups:
            # The state brings the rate of the day on which it was saved.
            group["lr"] = lr

    # TODO 6: begin with rank 0's parameters, and with the state of its optimizer (two broadcasts).

    for _ in range(epochs):
        # TODO 7: tell the sampler which epoch this is, so that it shuffles anew.
        total, count = 0.0, 0
        for x, y in loader:
            x, y = x.to(device), y.to(device)
            optimizer.zero_grad()
            loss = cross_entropy(model(x), y)
            loss.backward()
            optimizer.step()
            total, count = total + loss.item() * len(x), count + len(x)

    # TODO 8: these sums are those of one rank. Add them up over all ranks (hvd.allreduce).
    mean_loss = total / count

    # TODO 9: let rank 0 alone write the file.
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
