"""scripts/pipeline.py in which rank WHO does what MODE says, in the middle of a microbatch of the third update."""

import os
import signal
import sys
import time

from distlab.models.language import Block
from distlab.scripts import pipeline

mode, who, *words = sys.argv[1:]
# 2 layers and 4 microbatches: 8 calls in each update.
SPOILT = 2 * 8 + 4
forward, calls = Block.forward, []


def spoilt(block: Block, x):
    calls.append(1)
    if len(calls) == SPOILT:
        print("joined", time.time(), flush=True)
        if os.environ["RANK"] == who:
            if mode == "kill":
                os.kill(os.getpid(), signal.SIGKILL)
            raise RuntimeError(f"stage {who} is broken")
    return forward(block, x)


Block.forward = spoilt
pipeline.main(words)
