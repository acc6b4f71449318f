"""Horovod beside DDP, in turns on the same ranks: images per second, and all-reduce over sizes.

    distlab bench horovod [RUNS]

Two ranks with one thread each. Ratios are stated both ways, since which of the two is faster differs
from machine to machine. All-reduce is counted as the bandwidth of a ring, 2 (n - 1) / n times the bytes
of a tensor for n ranks (Patarasuk and Yuan 2009, Bandwidth optimal all-reduce algorithms).
"""

import statistics
import sys
from pathlib import Path

from _ratio import say_ratio, say_times
from distlab import run
from distlab.horovod_wheel import state
from distlab.launch import Session

ALLREDUCE = Path(__file__).parent / "scripts" / "allreduce.py"
HOSTS, RANKS = "node1:1,node2:1", 2
KIB = (4, 64, 1024, 16384)
# name -> (training script, launcher)
WAYS = {
    "DDP": ("ddp", "torchrun"),
    "Horovod over gloo": ("horovod_ddp", "horovodrun"),
    "Horovod over MPI": ("horovod_ddp", "horovodrun-mpi"),
}


def images_per_second(script: str, launcher: str, session: Session) -> float:
    """Training images per second of all ranks together, the first update left out."""
    words = {"epochs": 1, "limit": 12288, "batch_size": 512, "checkpoint": False}
    result = run(script, hosts=HOSTS, launcher=launcher, threads=1, quiet=True, session=session, **words)
    return sum(record["images_per_second"] for record in result.last("end").values())


def bandwidths(script: str, launcher: str, session: Session) -> dict[int, float]:
    """MB/s of an all-reduce, by KiB of the tensor."""
    library = "torch" if script == "ddp" else "horovod"
    words = (library, *map(str, KIB))
    result = run(ALLREDUCE, *words, hosts=HOSTS, launcher=launcher, threads=1, quiet=True, session=session)
    sent = 2 * (RANKS - 1) / RANKS
    return {
        kib: sent
        * kib
        * 1024
        / 1e6
        / max(record["seconds"] for record in result.records("allreduce") if record["kib"] == kib)
        for kib in KIB
    }


def main() -> int:
    """Measure and print; 0, since there is no bound to miss."""
    rounds = int(sys.argv[1]) if len(sys.argv) > 1 else 3
    known = state.installed()
    if known is None:
        print("Horovod is not built here: make horovod", file=sys.stderr)
        return 1
    print(f"the wheel ({'with' if known['nccl'] else 'without'} NCCL) was built in {known['seconds']:.0f} s")
    speed: dict[str, list[float]] = {name: [] for name in WAYS}
    moved: dict[str, list[dict[int, float]]] = {name: [] for name in WAYS}
    with Session() as session:
        for _ in range(rounds):
            for name, way in WAYS.items():
                speed[name].append(images_per_second(*way, session))
                moved[name].append(bandwidths(*way, session))
    for name, values in speed.items():
        say_times(name, values, "images/s")
    ddp, *others = WAYS
    for other in others:
        say_ratio(f"{other} / {ddp}, images/s", speed[other], speed[ddp])
        say_ratio(f"{ddp} / {other}, images/s", speed[ddp], speed[other])
    for kib in KIB:
        each = ", ".join(f"{name} {statistics.median(rates[kib] for rates in moved[name]):,.0f} MB/s" for name in WAYS)
        print(f"all-reduce of {kib:,} KiB: {each}")
        for other in others:
            say_ratio(
                f"  {other} / {ddp}", [rates[kib] for rates in moved[other]], [rates[kib] for rates in moved[ddp]]
            )
    return 0


if __name__ == "__main__":
    sys.exit(main())
