"""What autocast does to operations on this device, seen from the type of what comes out."""

import argparse
from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from distlab import process, report

Cast = Callable[[Tensor], Tensor]


def name_of(dtype: torch.dtype) -> str:
    """'float32' for torch.float32."""
    return str(dtype).removeprefix("torch.")


def operations(device: torch.device) -> dict[str, Callable[[Cast], Tensor]]:
    """Operations by name, each on inputs that are cast first."""
    rows, labels = torch.rand(4, 8, device=device) + 0.5, torch.arange(4, device=device)
    image, kernel = torch.rand(2, 4, 8, 8, device=device), torch.rand(4, 4, 3, 3, device=device)
    return {
        "linear": lambda to: F.linear(to(rows), to(rows)),
        "matmul": lambda to: to(rows) @ to(rows).T,
        "conv2d": lambda to: F.conv2d(to(image), to(kernel)),
        "scaled_dot_product_attention": lambda to: F.scaled_dot_product_attention(*[to(image)] * 3),
        "relu": lambda to: F.relu(to(rows)),
        "max_pool2d": lambda to: F.max_pool2d(to(image), 2),
        "add": lambda to: to(rows) + to(rows),
        "add to a float32": lambda to: rows + to(rows),
        "batch_norm": lambda to: F.batch_norm(to(image), None, None, training=True),
        "layer_norm": lambda to: F.layer_norm(to(rows), (8,)),
        "softmax": lambda to: F.softmax(to(rows), -1),
        "exp": lambda to: to(rows).exp(),
        "sum": lambda to: to(rows).sum(),
        "mse_loss": lambda to: F.mse_loss(to(rows), to(rows) * 2),
        "cross_entropy": lambda to: F.cross_entropy(to(rows), labels),
    }


def rule(from_32: str, from_16: str) -> str:
    """The rule in words, from what comes out for float32 and for 16-bit inputs."""
    if from_32 != "float32":
        return "goes down to 16 bits"
    return "goes up to 32 bits" if from_16 == "float32" else "keeps what it is given"


def main() -> None:
    """Run the experiment on this rank. Reports `cast` and `layer`."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--amp", choices=tuple(process.AMP_DTYPES), help="by default what the device is for")
    args = parser.parse_args()
    with process.group() as me:
        dtype = process.amp_dtype(me, args.amp)
        for operation, run in operations(me.device).items():
            with torch.autocast(me.device.type, dtype):
                given_32, given_16 = (
                    name_of(run(cast).dtype) for cast in (Tensor.float, lambda tensor: tensor.to(dtype))
                )
            report.log(
                me, "cast", operation=operation, from_32=given_32, from_16=given_16, rule=rule(given_32, given_16)
            )
        layer = nn.Linear(8, 8).to(me.device)
        with torch.autocast(me.device.type, dtype):
            output = layer(torch.rand(4, 8, device=me.device))
        output.float().sum().backward()
        types = {"output": output, "weight": layer.weight, "gradient": layer.weight.grad}
        report.log(me, "layer", device=str(me.device), **{key: name_of(tensor.dtype) for key, tensor in types.items()})


if __name__ == "__main__":
    main()
