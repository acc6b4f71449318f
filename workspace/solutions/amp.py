"""Solution: half the bits, the same training.

run("solutions/amp.py", hosts="node1:1")        # in the notebook: one process
check("amp", file="solutions/amp.py")           # every requirement holds
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
    model.to(device, memory_format=torch.channels_last)

    optimizer = torch.optim.SGD(model.parameters(), lr=lr, momentum=0.9)
    scaler = torch.amp.GradScaler(device.type, enabled=dtype == torch.float16)

    if checkpoint.exists():
        state = torch.load(checkpoint, map_location=device)
        model.load_state_dict(state["model"])
        optimizer.load_state_dict(state["optimizer"])
        scaler.load_state_dict(state["scaler"])

    loader = DataLoader(dataset, batch_size, shuffle=True)
    for _ in range(epochs):
        total, count = 0.0, 0
        for x, y in loader:
            x, y = x.to(device, memory_format=torch.channels_last), y.to(device)
            with torch.autocast(device.type, dtype):
                loss = cross_entropy(model(x), y)
            optimizer.zero_grad()
            scaler.scale(loss).backward()
            scaler.unscale_(optimizer)
            clip_grad_norm_(model.parameters(), max_norm)
            scaler.step(optimizer)
            scaler.update()
            total, count = total + loss.item() * len(x), count + len(x)

    state = {"model": model.state_dict(), "optimizer": optimizer.state_dict(), "scaler": scaler.state_dict()}
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
