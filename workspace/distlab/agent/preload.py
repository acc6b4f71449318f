"""What every warm rank needs, imported once by the process that ranks are forked from.

The first optimizer imports torch._dynamo, which costs nearly as much as torch. torchvision is
left out: it takes longer than both, and the lessons' data are read without it. CUDA stays
untouched, since it does not survive a fork.
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

# A rank's end must undo what it did itself, and no more: to unregister torch's operators alone
# takes longer than the fork.
for finalizer in list(weakref.finalize._registry):
    finalizer.atexit = False

# What is here stays for good. A collection in a rank would touch, and so copy, all of it.
gc.collect()
gc.freeze()
