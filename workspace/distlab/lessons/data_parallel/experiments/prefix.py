"""What a DataParallel calls its weights, and how such a checkpoint gets into a plain model and back."""

from collections.abc import Callable
from pathlib import Path

import torch
from torch import nn

from distlab import checkpoint, process, replicas, report


def net(seed: int) -> nn.Module:
    """A small network whose weights depend on a seed."""
    torch.manual_seed(seed)
    return nn.Sequential(nn.Linear(8, 4), nn.Tanh(), nn.Linear(4, 2))


def refusal(load: Callable, *arguments: object) -> str | None:
    """None when weights are taken, else what is said."""
    try:
        load(*arguments)
    except (RuntimeError, ValueError) as error:
        return str(error)
    return None


def main() -> None:
    """Run the experiment on this rank. Reports `state`."""
    with process.alone() as me:
        devices = me.devices()

        def plain(seed: int) -> nn.Module:
            return net(seed).to(me.device)

        trained = replicas.wrap(plain(seed=0), devices)
        file = Path(process.run_folder()) / "weights.pt"
        inputs = torch.ones(3, 8, device=me.device)

        def apart(model: nn.Module) -> float:
            with torch.no_grad():
                return (model(inputs) - trained(inputs)).abs().max().item()

        torch.save(trained.state_dict(), file)
        state = torch.load(file, weights_only=True)
        alone, by_hand, by_us, back = plain(1), plain(1), plain(1), replicas.wrap(plain(1), devices)
        bare = {name.removeprefix("module."): value for name, value in state.items()}
        report.log(
            me,
            "state",
            keys=list(state),
            refused=refusal(alone.load_state_dict, state),
            refused_by_hand=refusal(by_hand.load_state_dict, bare),
            difference_by_hand=apart(by_hand),
            refused_by_us=refusal(checkpoint.load_model, by_us, state),
            difference_by_us=apart(by_us),
            # And back: a plain file into a wrapped model.
            wrapper_refused=refusal(back.load_state_dict, bare),
            wrapper_refused_by_us=refusal(checkpoint.load_model, back, bare),
            difference_back=apart(back),
        )


if __name__ == "__main__":
    main()
