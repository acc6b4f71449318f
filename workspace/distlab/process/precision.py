"""Which 16-bit types a device has units for, and which of them autocast should use on it."""

import torch

from distlab.errors import SettingError
from distlab.process.joining import Rank

AMP_DTYPES = {"bf16": torch.bfloat16, "fp16": torch.float16}
OFF = "off"
# As torch.cpu.get_capabilities() names them, on x86 and on ARM.
CPU_UNITS = {
    "bf16": ("avx512_bf16", "amx_bf16", "avx_ne_convert", "bf16", "sve_bf16"),
    "fp16": ("avx512_fp16", "amx_fp16", "fp16_arith"),
    "tf32": (),
}
# The first compute capability whose tensor cores multiply this type (CUDA C++ programming guide, table
# of arithmetic instructions).
GPU_UNITS = {"bf16": (8, 0), "fp16": (7, 0), "tf32": (8, 0)}


def units(device: torch.device) -> dict[str, list[str]]:
    """What this device has for each of bf16, fp16 and tf32: instruction sets or tensor cores, or nothing.

    What a CPU has, torch may still not use for every layer: only a measurement says what is fast.
    """
    if device.type == "cuda":
        capability = torch.cuda.get_device_capability(device)
        name = f"tensor cores {capability[0]}.{capability[1]}"
        return {kind: [name] if capability >= least else [] for kind, least in GPU_UNITS.items()}
    has = torch.cpu.get_capabilities()
    return {kind: [name for name in names if has.get(name)] for kind, names in CPU_UNITS.items()}


def device_name(device: torch.device) -> str:
    """The model of the GPU or CPU, as it names itself."""
    if device.type == "cuda":
        return torch.cuda.get_device_name(device)
    return str(torch.cpu.get_capabilities().get("cpu_name", "a CPU"))


def amp_dtype(me: Rank, name: str | None = None) -> torch.dtype | None:
    """The type for `torch.autocast` on this rank's device; rank 0 prints when the device has no units for it.

    Args:
        name: 'bf16', 'fp16', or 'off' for None. Without one: bf16, which needs no loss scaling, except
            on a GPU that has units for fp16 alone.

    Raises:
        SettingError: no type has this name.
    """
    has = units(me.device)
    if name is None:
        name = "fp16" if me.device.type == "cuda" and not has["bf16"] else "bf16"
    if name == OFF:
        return None
    if name not in AMP_DTYPES:
        raise SettingError(f"no type {name!r} for mixed precision: use {', '.join(AMP_DTYPES)} or {OFF}")
    if not has[name]:
        me.print(f"{name} on a {me.device.type} without units for it: expect it to be slower than --amp {OFF}")
    return AMP_DTYPES[name]
