"""float32 matrix multiplication with the switch for TF32 in each position: how far from float64, and how long."""

import argparse
from typing import Any

import torch
from torch import Tensor

from distlab import process, report


def switch(device: torch.device) -> Any:
    """What holds `fp32_precision` for matrix multiplication on this device."""
    return torch.backends.cuda.matmul if device.type == "cuda" else torch.backends.mkldnn.matmul  # type: ignore[attr-defined]  # set at import


def modes(device: torch.device) -> tuple[str, ...]:
    """The positions of the switch; 'bf16' is known on CPUs alone."""
    return ("ieee", "tf32") if device.type == "cuda" else ("ieee", "tf32", "bf16")


def seconds(a: Tensor, b: Tensor, rounds: int) -> float:
    """The shortest of several multiplications."""
    times = []
    for _ in range(rounds):
        start = process.now(a.device)
        a @ b
        times.append(process.now(a.device) - start)
    return min(times)


def main() -> None:
    """Run the experiment on this rank. Reports `precision`."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--size", type=int, help="rows and columns; 512 on a CPU, 4096 on a GPU")
    parser.add_argument("--rounds", type=int, default=5)
    args = parser.parse_args()
    with process.group() as me:
        size = args.size or (4096 if me.device.type == "cuda" else 512)
        torch.manual_seed(0)
        a, b = torch.randn(2, size, size, device=me.device)
        exact = a.double() @ b.double()
        holder = switch(me.device)
        before = holder.fp32_precision
        for mode in modes(me.device):
            holder.fp32_precision = mode
            product = a @ b
            report.log(
                me,
                "precision",
                mode=mode,
                dtype=str(product.dtype).removeprefix("torch."),
                error=(product - exact).norm() / exact.norm(),
                milliseconds=1000 * seconds(a, b, args.rounds),
                units=process.units(me.device),
            )
        holder.fp32_precision = before


if __name__ == "__main__":
    main()
