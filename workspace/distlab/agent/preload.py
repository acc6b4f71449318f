"""What every warm rank needs, imported once by the process that ranks are forked from.

torch._dynamo is among it, since the first optimizer imports it and that takes nearly as long as torch.
torchvision is not: it takes longer than both, and the lessons read their data without it. Nothing
here may use CUDA, which does not survive a fork.
"""

import gc
import importlib
import weakref

PRELOAD = (
    *("torch", "torch._dynamo", "torch.distributed", "torch.nn.parallel", "torch.utils.data", "numpy"),
    *("distlab.agent.rank", "distlab.checkpoint", "distlab.data", "distlab.loop", "distlab.models"),
    *("distlab.process", "distlab.report", "distlab.stages"),
)
for name in PRELOAD:
    importlib.import_module(name)

# Ranks skip the clean-up at exit of what was imported here: torch's alone takes longer than the fork.
for finalizer in list(weakref.finalize._registry):  # type: ignore[attr-defined]  # private, so not in the stub
    finalizer.atexit = False

# A garbage collection in a rank would write to all these objects, and so copy the memory that ranks share.
gc.collect()
gc.freeze()
