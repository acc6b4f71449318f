"""The net and the samples on which ranks of a check train, what each rank sees, and one process that does it all."""

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy
from torch.optim import Optimizer

FEATURES, HIDDEN, CLASSES = 20, 12, 5


class Net(nn.Module):
    """(N, FEATURES) to logits (N, CLASSES). Two layers share a weight, and `scale` is frozen."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(FEATURES, HIDDEN)
        self.second = nn.Linear(HIDDEN, HIDDEN)
        self.third = nn.Linear(HIDDEN, HIDDEN)
        self.third.weight = self.second.weight
        self.scale = nn.Parameter(torch.rand(HIDDEN) + 0.5, requires_grad=False)
        self.head = nn.Linear(HIDDEN, CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        """(N, FEATURES) to logits (N, CLASSES)."""
        for layer in (self.first, self.second, self.third):
            x = torch.tanh(layer(x.flatten(1)))
        logits: Tensor = self.head(x * self.scale)
        return logits


def samples(n: int) -> tuple[Tensor, Tensor]:
    """Inputs (n, FEATURES) and their classes (n), the same on every rank."""
    numbers = torch.Generator().manual_seed(7)
    return torch.randn(n, FEATURES, generator=numbers), torch.randint(CLASSES, [n], generator=numbers)


class Batches:
    """The batches that a rank trains on, as indices of samples, and the sum of losses over each."""

    def __init__(self, x: Tensor, y: Tensor) -> None:
        self.x, self.y = x, y
        self.batches: list[list[int]] = []
        self.losses: list[float] = []

    def see(self, inputs: tuple[Any, ...], logits: Tensor) -> None:
        """Samples are told by their values, so any loader will do."""
        batch = torch.cdist(inputs[0].detach().flatten(1).float(), self.x).argmin(1)
        self.batches.append(batch.tolist())
        self.losses.append(float(cross_entropy(logits.detach().float(), self.y[batch], reduction="sum")))


def trained(net: nn.Module) -> list[nn.Parameter]:
    """The parameters that are not frozen."""
    return [p for p in net.parameters() if p.requires_grad]


def train_alone(net: nn.Module, optimizer: Optimizer, x: Tensor, y: Tensor, batches: list[list[list[int]]]) -> None:
    """One process's training on the same global batches: `batches[rank][step]` are sample indices."""
    for parts in zip(*batches, strict=False):
        batch = [index for part in parts for index in part]
        optimizer.zero_grad()
        cross_entropy(net(x[batch]), y[batch]).backward()
        optimizer.step()


def weights(net: nn.Module) -> Tensor:
    """All parameters of a net in one vector."""
    return torch.cat([p.detach().flatten() for p in net.parameters()])


def apart(one: Tensor, other: Tensor) -> float:
    """Largest difference of two vectors."""
    return float((one - other).abs().max())


def as_number(returned: object) -> dict[str, Any]:
    """What `train` returned, for the report: `returned` is None when it is no number."""
    number = None
    if isinstance(returned, (int, float)) or (isinstance(returned, Tensor) and returned.numel() == 1):
        number = float(returned)
    return {"returned": number, "returned_type": type(returned).__name__}
