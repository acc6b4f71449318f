"""Which GPUs this machine has, asked of the driver: a process that has used CUDA cannot fork ranks that use it."""

import os
from dataclasses import dataclass


@dataclass(frozen=True)
class Gpu:
    """One GPU as the driver describes it; memory in bytes."""

    index: str
    name: str
    memory: int


def list_gpus() -> list[Gpu]:
    """GPUs of this machine that CUDA_VISIBLE_DEVICES leaves visible; [] without a driver."""
    import pynvml

    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError:
        return []
    try:
        handles = [pynvml.nvmlDeviceGetHandleByIndex(i) for i in range(pynvml.nvmlDeviceGetCount())]
        found = [
            (pynvml.nvmlDeviceGetUUID(handle), pynvml.nvmlDeviceGetName(handle), pynvml.nvmlDeviceGetMemoryInfo(handle))
            for handle in handles
        ]
    finally:
        pynvml.nvmlShutdown()
    everything = [Gpu(str(index), name, int(memory.total)) for index, (_, name, memory) in enumerate(found)]
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    if visible is None:
        return everything
    by_key = {gpu.index: gpu for gpu in everything} | {
        uuid: gpu for (uuid, _, _), gpu in zip(found, everything, strict=True)
    }
    chosen = []
    # As CUDA, which ignores the first entry that it does not know and all after it.
    for key in (part.strip() for part in visible.split(",")):
        if key not in by_key:
            break
        chosen.append(by_key[key])
    return chosen
