"""Exercise: half the bits, the same training.

run("exercises/amp.py", hosts="node1:1")    # in the notebook: one process
check("amp")                                # says what is missing, one step at a time

As it stands, it trains in float32 and pays no heed to dtype.
The TODOs are numbered in the order in which to do them.
"""

from pathlib import Path

import torch
from distlab import data, models, process
from torch.nn.functional import cross_entropy
from torch.nn.utils import clip_grad_norm_
from torch.utils.data import DataLoader, Dataset


def train(
    dataset: Dataset,
    model: torch.nn.Module,
    epochs: int,
    batch_size: int,
    lr: float,
    max_norm: float,
    dtype: torch.dtype,
    device: torch.device,
    checkpoint: Path,
) -> float:
    """Train a model in mixed precision and channels_last, and go on where the checkpoint left off.

    Args:
        dataset: pairs (x, y) with x of shape (C, H, W).
        model: in float32, and its weights stay so.
        epochs: how many to train now, whatever was trained before.
        lr: learning rate of SGD with momentum 0.9.
        max_norm: the largest norm that the gradient of all parameters together may have.
        dtype: what autocast computes in. torch.float16 needs a scaled loss, torch.bfloat16 does without.
        checkpoint: read at the start if it is there, written at the end: all that the next call needs.

    Returns:
        Mean loss of a sample in the last epoch.
    """
    # TODO 1: lay out the weights channels_last.
    model.to(device)

    optimizer = torch.optim.SGD(model.parameters(), lr=lr, momentum=0.9)
    # TODO 4: make a torch.amp.GradScaler for this kind of device, enabled when dtype is torch.float16 ...

    if checkpoint.exists():
        state = torch.load(checkpoint, map_location=device)
        model.load_state_dict(state["model"])
        optimizer.load_state_dict(state["optimizer"])
        # TODO 7: the scaler goes on as well ...

    loader = DataLoader(dataset, batch_size, shuffle=True)
    for _ in range(epochs):
        total, count = 0.0, 0
        for x, y in loader:
            # TODO 2: lay out the images channels_last, too.
            x, y = x.to(device), y.to(device)
            # TODO 3: compute these two in dtype (torch.autocast), and nothing else.
            loss = cross_entropy(model(x), y)
            optimizer.zero_grad()
            # TODO 4: ... and go backward from the scaled loss.
            loss.backward()
            # TODO 5: max_norm is meant for gradients without the scale.
            clip_grad_norm_(model.parameters(), max_norm)
            # TODO 6: leave out a step whose gradients overflowed, and let the scale follow.
            optimizer.step()
            total, count = total + loss.item() * len(x), count + len(x)

    # TODO 7: ... from what is saved here.
    state = {"model": model.state_dict(), "optimizer": optimizer.state_dict()}
    torch.save(state, checkpoint)
    return total / count


def main() -> None:
    """Train a small network on real images, twice: the second time goes on where the first ended."""
    torch.manual_seed(0)
    with process.alone() as me:
        images = data.load("fashion-mnist", limit=2000)
        shape = images.channels, len(images.classes), images.height, images.width
        checkpoint = process.run_folder() / "exercise_amp.pt"
        # Most CPUs go backward through convolutions in float16 many times slower than in bfloat16.
        dtype = torch.float16 if me.device.type == "cuda" else torch.bfloat16
        for seed in (0, 1):
            # Other weights each time: they are overwritten by those in the checkpoint.
            model = models.build("small-cnn", *shape, seed=seed)
            loss = train(images.train, model, 1, 50, 0.05, 1.0, dtype, me.device, checkpoint)
            print(f"loss in the last epoch: {loss:.4f}")


if __name__ == "__main__":
    main()
