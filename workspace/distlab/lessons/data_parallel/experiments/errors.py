"""Two ways to use DataParallel wrongly, and what is said about each."""

import torch
from torch import nn

from distlab import process, replicas, report


def said(model: nn.Module, inputs: torch.Tensor) -> dict:
    """Type, message and notes of the error that a forward pass raises."""
    try:
        model(inputs)
    except Exception as error:
        return {"type": type(error).__name__, "message": str(error), "notes": getattr(error, "__notes__", [])}
    return {"type": None, "message": "", "notes": []}


class Fragile(nn.Module):
    """Doubles its input, unless a sample is negative."""

    def __init__(self) -> None:
        super().__init__()
        self.factor = nn.Parameter(torch.tensor(2.0))

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        """Samples times a factor, same shape."""
        if (inputs < 0).any():
            raise ValueError("a sample is negative")
        return self.factor * inputs


def main() -> None:
    """Run the experiment on this rank. Reports `wrong device` and `one fails`."""
    with process.alone() as me:
        devices = me.devices(4)
        inputs = torch.ones(8, 3, device=me.device)
        # The device "meta" exists everywhere: its tensors have a shape and no numbers.
        elsewhere = replicas.wrap(nn.Linear(3, 2).to("meta"), devices)
        inputs_of_6 = inputs.clone()
        inputs_of_6[5] = -1
        report.log(me, "wrong device", **said(elsewhere, inputs))
        report.log(me, "one fails", **said(replicas.wrap(Fragile().to(me.device), devices), inputs_of_6))


if __name__ == "__main__":
    main()
