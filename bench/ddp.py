"""What DDP gains on two cores and costs on one, against one process with the same batch per rank.

    distlab bench ddp [RUNS]

Each rank has one thread and batches of 256: the smaller a batch, the larger the share of an
all-reduce, whose cost does not depend on it. The three take turns, so that a machine that slows down slows all.
"""

import sys

from _ratio import say_ratio, say_times
from distlab import run
from distlab.hosts.host import machine_cores

CASES = {
    "single": ("single", "node1:1"),
    "ddp on 1 rank": ("ddp", "node1:1"),
    "ddp on 2 ranks": ("ddp", "node1:1,node2:1"),
}


def images_per_second(script: str, hosts: str) -> float:
    """Training images per second of all ranks together, the first update left out."""
    result = run(
        script,
        hosts=hosts,
        threads=1,
        quiet=True,
        epochs=1,
        limit=20480,
        batch_size=256,
        checkpoint=False,
        env={"TQDM_DISABLE": "1"},
    )
    return sum(record["images_per_second"] for record in result.last("end").values())


def main() -> int:
    """Measure and print; returns 1 when a bound is missed."""
    runs = int(sys.argv[1]) if len(sys.argv) > 1 else 5
    speed: dict[str, list[float]] = {name: [] for name in CASES}
    for case in CASES.values():
        images_per_second(*case)
    for _ in range(runs):
        for name, case in CASES.items():
            speed[name].append(images_per_second(*case))
    for name, values in speed.items():
        say_times(name, values, "images/s")
    holds = [say_ratio("single / ddp on 1 rank", speed["single"], speed["ddp on 1 rank"], most=1.05)]
    if machine_cores() < 2:
        print("ddp on 2 ranks needs two cores to be compared; this machine has one")
    else:
        holds.append(say_ratio("ddp on 2 ranks / single", speed["ddp on 2 ranks"], speed["single"], least=1.8))
    return 0 if all(holds) else 1


if __name__ == "__main__":
    sys.exit(main())
