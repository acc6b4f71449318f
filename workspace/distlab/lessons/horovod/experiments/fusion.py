"""How many all-reduces many small tensors take with Horovod, and how long: one start for one setting.

Horovod reads its settings once, at its start, so each pair of --threshold and --cycle-ms is a run of its
own. A tensor is as large as one of a network of equal layers with --width inputs and outputs: weights and
biases in turn. The all-reduces of the very steps that are timed are counted in Horovod's own timeline;
what writes it takes time from rank 0's core, so steps are somewhat longer than in training.
"""

import argparse
import os
import time
from pathlib import Path
from statistics import median

import torch

from distlab import report
from distlab.lessons.horovod import joining, trace
from distlab.process import Rank
from distlab.runs import run_folder


def measure(me: Rank, args: argparse.Namespace) -> None:
    """Report what each step took, and in how many all-reduces it went."""
    import horovod.torch as hvd

    shapes = [(args.width, args.width), (args.width,)]
    gradients = [torch.ones(shapes[number % 2], device=me.device) for number in range(args.tensors)]

    def step() -> float:
        begin = time.perf_counter()
        handles = [hvd.allreduce_async_(gradient, name=str(number)) for number, gradient in enumerate(gradients)]
        for handle in handles:
            hvd.synchronize(handle)
        return 1000 * (time.perf_counter() - begin)

    # Connections are made, and tensors become known, in the first steps.
    for _ in range(2):
        step()
    timeline = Path(run_folder(), "horovod-timeline.json")
    hvd.start_timeline(str(timeline))
    # Nobody begins before rank 0 takes notes.
    hvd.barrier()
    milliseconds = [step() for _ in range(args.steps)]
    hvd.stop_timeline()
    if me.rank != 0:
        return
    seen = trace.steps(trace.trips(trace.read(timeline)))
    reduces = [len(trace.groups(step)) for step in seen]
    sizes = {"tensors": len(gradients), "bytes": sum(gradient.nbytes for gradient in gradients)}
    setting = {"threshold_bytes": args.threshold, "cycle_ms": args.cycle_ms, **sizes}
    each = {"milliseconds_each": milliseconds, "reduces_each": reduces}
    report.log(me, "fusion", **setting, milliseconds=median(milliseconds), reduces=median(reduces), **each)


def main() -> None:
    """Run the experiment on this rank. Reports `fusion`."""
    parser = argparse.ArgumentParser(description=__doc__)
    add = parser.add_argument
    add("--threshold", type=int, default=128 << 20, help="fusion threshold in bytes; 0: no fusion")
    add("--cycle-ms", type=float, default=1.0, help="how often Horovod looks for what is ready")
    add("--tensors", type=int, default=64)
    add("--width", type=int, default=64, help="inputs and outputs of a layer")
    add("--steps", type=int, default=7)
    args = parser.parse_args()
    os.environ["HOROVOD_FUSION_THRESHOLD"] = str(args.threshold)
    os.environ["HOROVOD_CYCLE_TIME"] = str(args.cycle_ms)
    os.environ["HOROVOD_TIMELINE"] = "DYNAMIC"
    with joining.join() as me:
        measure(me, args)


if __name__ == "__main__":
    main()
