"""The formats of floating-point numbers as torch knows them, and what they make of a few values."""

import torch
from torch import Tensor

from distlab import process, report

DTYPES = {
    "fp32": torch.float32,
    "bf16": torch.bfloat16,
    "fp16": torch.float16,
    "fp8 e5m2": torch.float8_e5m2,
    "fp8 e4m3": torch.float8_e4m3fn,
}
VALUES = (1.001, 3.14159, 70_000.0, 1e-6, 1e-8)
TF32_BITS = 10


def to_tf32(values: Tensor) -> Tensor:
    """float32 values rounded to the ten bits of mantissa that TF32 keeps; its exponent is that of float32.

    TF32 is a mode of multiplication, no type of torch: NVIDIA A100 white paper (2020), "TF32 precision".
    """
    dropped = 23 - TF32_BITS
    bits = values.float().view(torch.int32)
    # To nearest, ties to even, as the other formats round.
    bits = bits + ((1 << (dropped - 1)) - 1) + ((bits >> dropped) & 1)
    return ((bits >> dropped) << dropped).view(torch.float32)


def limits(dtype: torch.dtype) -> dict[str, float]:
    """Largest number, smallest with full precision, smallest of all, and the step behind 1."""
    known = torch.finfo(dtype)
    tiny = known.smallest_normal
    return {"largest": known.max, "smallest_normal": tiny, "smallest": tiny * known.eps, "step": known.eps}


def main() -> None:
    """Run the experiment on this rank. Reports `format`."""
    with process.group() as me:
        if not me.is_main:
            return
        values = torch.tensor(VALUES)
        for name, dtype in DTYPES.items():
            rounded = [str(number) for number in values.to(dtype).float().tolist()]
            report.log(me, "format", name=name, **limits(dtype), values=list(VALUES), rounded=rounded)
        step = 2.0**-TF32_BITS
        own = limits(torch.float32) | {"step": step, "smallest": torch.finfo(torch.float32).smallest_normal * step}
        rounded = [str(number) for number in to_tf32(values).tolist()]
        report.log(me, "format", name="tf32", **own, values=list(VALUES), rounded=rounded)


if __name__ == "__main__":
    main()
