"""What DDP gains on two cores and costs on one, against one process with the same batch per rank.

    distlab bench ddp [RUNS]

Each rank has one thread and batches of 1024: the smaller a batch, the larger the share of an
all-reduce, whose cost does not depend on it, and of the wait for the slower of two cores, which a
long step evens out. All cases take turns. Two processes that train beside each other without a
word are what this machine could give at most: less than 2 where its cores are shared with others.
"""

import sys
from concurrent.futures import ThreadPoolExecutor

from _ratio import say_ratio, say_times
from distlab import run
from distlab.hosts.host import machine_cores
from distlab.launch import Session

CASES = {
    "single": ("single", "node1:1"),
    "ddp on 1 rank": ("ddp", "node1:1"),
    "ddp on 2 ranks": ("ddp", "node1:1,node2:1"),
}


def images_per_second(script: str, hosts: str, session: Session) -> float:
    """Training images per second of all ranks together, the first update left out."""
    result = run(
        script,
        hosts=hosts,
        threads=1,
        quiet=True,
        epochs=1,
        limit=24576,
        batch_size=1024,
        checkpoint=False,
        env={"TQDM_DISABLE": "1"},
        session=session,
    )
    return sum(record["images_per_second"] for record in result.last("end").values())


def two_at_once(sessions: list[Session]) -> float:
    """Images per second of two processes that train at the same time, each by itself."""
    with ThreadPoolExecutor(2) as pool:
        return sum(pool.map(lambda session: images_per_second(*CASES["single"], session), sessions))


def main() -> int:
    """Measure and print; returns 1 when a bound is missed."""
    runs = int(sys.argv[1]) if len(sys.argv) > 1 else 9
    speed: dict[str, list[float]] = {name: [] for name in [*CASES, "two at once"]}
    with Session() as one, Session() as other:
        two_at_once([one, other])
        for _ in range(runs):
            for name, case in CASES.items():
                speed[name].append(images_per_second(*case, one))
            speed["two at once"].append(two_at_once([one, other]))
    for name, values in speed.items():
        say_times(name, values, "images/s")
    single, alone, pair = (speed[name] for name in CASES)
    holds = [say_ratio("single / ddp on 1 rank", single, alone, most=1.05)]
    if machine_cores() < 2:
        print("ddp on 2 ranks needs two cores to be compared; this machine has one")
    else:
        holds.append(say_ratio("ddp on 2 ranks / single", pair, single, least=1.8))
        say_ratio("two processes at once / single", speed["two at once"], single)
        say_ratio("ddp on 2 ranks / two processes at once", pair, speed["two at once"])
    return 0 if all(holds) else 1


if __name__ == "__main__":
    sys.exit(main())
