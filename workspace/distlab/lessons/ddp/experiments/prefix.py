"""What a wrapped model calls its parameters, and what that does to whoever loads them."""

from pathlib import Path

import torch
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from distlab import process, report


def net(seed: int) -> nn.Module:
    """A small network whose weights depend on a seed."""
    torch.manual_seed(seed)
    return nn.Sequential(nn.Linear(8, 4), nn.Tanh(), nn.Linear(4, 2))


def try_to_load(model: nn.Module, state: dict) -> str | None:
    """None when the state fits, else what PyTorch says."""
    try:
        model.load_state_dict(state)
    except RuntimeError as error:
        return str(error)
    return None


def main() -> None:
    """Run the experiment on this rank. Reports `state`."""
    with process.group() as me:
        wrapped = DistributedDataParallel(net(seed=0).to(me.device))
        inputs = torch.ones(3, 8, device=me.device)
        if not me.is_main:
            return
        file = Path(process.run_folder()) / "weights.pt"
        for what, model in (("wrapped", wrapped), ("unwrapped", wrapped.module)):
            torch.save(model.state_dict(), file)
            state = torch.load(file, weights_only=True)
            alone = net(seed=1).to(me.device)
            refused = try_to_load(alone, state)
            with torch.no_grad():
                difference = (alone(inputs) - wrapped.module(inputs)).abs().max().item()
            report.log(me, "state", what=what, keys=list(state), refused=refused, difference=difference)


if __name__ == "__main__":
    main()
