"""Solution: DataParallel by hand, with replicas in threads of one process.

run("solutions/data_parallel.py", hosts="node1:1")      # in the notebook: one process, four replicas
check("data_parallel", file="solutions/data_parallel.py")    # every requirement holds
"""

import copy
import threading

import torch
from distlab import data, models
from torch import Tensor, nn
from torch.nn.functional import cross_entropy


def scatter(batch: Tensor, devices: list[torch.device]) -> list[Tensor]:
    """Cut a batch (N, ...) into pieces (n, ...), one for each device, each on its device.

    The pieces follow each other as in the batch. They are as equal as can be: none has more than
    N / devices samples, rounded up. None is empty: a small batch has fewer pieces than there are devices.
    """
    return [piece.to(device) for piece, device in zip(batch.chunk(len(devices)), devices, strict=False)]


def replicate(model: nn.Module, devices: list[torch.device]) -> list[nn.Module]:
    """A copy of the model for each device, on its device, with the weights that the model has now.

    The model itself stays where it is and as it is.
    """
    return [copy.deepcopy(model).to(device) for device in devices]


def parallel_apply(replicas: list[nn.Module], pieces: list[Tensor]) -> list[Tensor]:
    """What each replica makes of its piece, in the order of the replicas.

    All replicas compute at the same time, each in a thread of its own. An error of a replica is
    raised here, when all threads have ended.
    """
    outputs: list = [None] * len(replicas)
    errors = []

    def work(number: int) -> None:
        try:
            outputs[number] = replicas[number](pieces[number])
        except Exception as error:
            errors.append(error)

    threads = [threading.Thread(target=work, args=[number]) for number in range(len(replicas))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if errors:
        raise errors[0]
    return outputs


def gather(outputs: list[Tensor], device: torch.device) -> Tensor:
    """The outputs (n, ...) of all replicas as one tensor (N, ...) on a device, in their order.

    Backward goes through it to every replica.
    """
    return torch.cat([output.to(device) for output in outputs])


def add_gradients(model: nn.Module, replicas: list[nn.Module]) -> None:
    """Add the gradients of all replicas to those of the model, as backward does.

    A gradient that is None, as that of a frozen weight, adds nothing.
    """
    for replica in replicas:
        for own, other in zip(model.parameters(), replica.parameters(), strict=True):
            if other.grad is not None:
                gradient = other.grad.to(own.device)
                own.grad = gradient if own.grad is None else own.grad + gradient


def state_to_save(wrapped: nn.DataParallel) -> dict[str, Tensor]:
    """The weights of a model inside nn.DataParallel, under the names that they have in a plain model."""
    return wrapped.module.state_dict()


def load(model: nn.Module, state: dict[str, Tensor]) -> None:
    """Put saved weights into a plain model, whether they were saved with or without nn.DataParallel around it.

    Only the one `module.` that the wrapper puts in front of every name goes away.
    """
    if all(name.startswith("module.") for name in state):
        state = {name.removeprefix("module."): value for name, value in state.items()}
    model.load_state_dict(state)


def train_step(
    model: nn.Module, optimizer: torch.optim.Optimizer, inputs: Tensor, labels: Tensor, devices: list[torch.device]
) -> float:
    """One training step on all devices, the first of which has the model; returns the loss. Nothing to do here."""
    pieces = scatter(inputs, devices)
    replicas = replicate(model, devices[: len(pieces)])
    outputs = parallel_apply(replicas, pieces)
    loss = cross_entropy(gather(outputs, devices[0]), labels)
    optimizer.zero_grad()
    loss.backward()
    add_gradients(model, replicas)
    optimizer.step()
    return loss.item()


def main() -> None:
    """Train a small network on real images with four replicas."""
    images = data.load("fashion-mnist", limit=2000)
    model = models.build("mlp", images.channels, len(images.classes), images.height, images.width)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    devices = [torch.device("cpu")] * 4
    for number, (inputs, labels) in enumerate(data.loader(images.train, 100), 1):
        loss = train_step(model, optimizer, inputs, labels, devices)
        if number % 5 == 0:
            print(f"step {number}: loss {loss:.4f}")


if __name__ == "__main__":
    main()
