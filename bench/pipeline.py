"""What a step of a pipeline costs beside the time that its schedule says, and the bubble beside the formula.

    distlab bench pipeline [ROUNDS]

Ideal are ranks that never wait: processes that do the same microbatches of the whole model beside each
other without a word, p times as much work as one pipeline does. It is made longer by the schedule's
own bubble: (p - 1) / (m + p - 1) of the step for gpipe and 1f1b, what the simulator says for the
others. Against one process alone, printed below it, counts too what a machine loses when all its cores
work. Each rank has a core and one thread, or a GPU. Stages take 50 ms or more for a microbatch, so that
messages are small beside them. All cases take turns.
"""

import sys

from _ratio import say_ratio, say_times
from distlab import hosts, run
from distlab.hosts import parse
from distlab.launch import RunResult
from distlab.lessons.pipeline.pictures.bubbles import expected
from distlab.lessons.pipeline.schedules import bubble, cases

MICROBATCHES, SWEEP = 8, (1, 2, 4, 8, 16)
BOUND, BOUND_FOR = 1.15, ("gpipe", "1f1b")
LEAST_STAGE = 50
# Layers that are large beside what they hand on. A stage has the fewer of them, the more ranks there are.
SIZES = "--width", "512", "--context", "48"


def measure(where: str, ranks: int, *more: str, pieces: tuple[int, ...], rounds: int) -> RunResult:
    """Steps of all schedules."""
    sizes = [*SIZES, "--layers", str(max(8, 2 * ranks)), "--samples", str(ranks), "--rounds", str(rounds)]
    words = [*sizes, "--microbatches", *map(str, pieces), *more]
    return run("pipeline/steps", *words, hosts=where, threads=1, quiet=True)


def stage_times(records: list[dict]) -> list[float]:
    """Milliseconds of each rank for a microbatch, forward and backward."""
    pieces = records[0]["microbatches"]
    return [sum(span["end"] - span["start"] for span in record["spans"]) / pieces for record in records]


def against_ideal(result: RunResult, ranks: int, bounded: bool) -> bool:
    """Print (a): each schedule's step against its ideal; returns whether the bounds hold."""
    alone = result.records("alone")[0]
    say_times("one process", alone["each"], "ms")
    say_times(f"{ranks} processes at once, without a word", alone["each_at_once"], "ms")
    say_ratio(
        "work done by all at once / by one", [ranks * seconds for seconds in alone["each"]], alone["each_at_once"]
    )
    holds = []
    for (schedule, pieces), records in cases(result.records("work")).items():
        stage = min(stage_times(records))
        if stage < LEAST_STAGE:
            print(
                f"{schedule}: a stage takes {stage:.1f} ms, less than {LEAST_STAGE}: messages weigh more than they may"
            )
        idle = expected(schedule, ranks, pieces)
        ideal = [seconds / ranks / (1 - idle) for seconds in alone["each_at_once"]]
        alone_ideal = [seconds / ranks / (1 - idle) for seconds in alone["each"]]
        say_times(
            f"{schedule}, {pieces} microbatches, bubble {idle:.1%}, stages of {stage:.0f} ms", records[0]["each"], "ms"
        )
        most = BOUND if bounded and schedule in BOUND_FOR else 0
        holds.append(say_ratio(f"{schedule} / ideal and its bubble", records[0]["each"], ideal, most=most))
        say_ratio(f"{schedule} / the same, from one process alone", records[0]["each"], alone_ideal)
    return all(holds)


def bubbles(result: RunResult, ranks: int) -> None:
    """Print (b): measured beside expected, by number of microbatches."""
    print("bubble, measured / expected")
    for (schedule, pieces), records in cases(result.records("work")).items():
        print(f"  {schedule:12} m = {pieces:2}: {bubble(records):6.1%} / {expected(schedule, ranks, pieces):6.1%}")
    for record in result.records("skipped"):
        if record["rank"] == 0:
            print(f"  {record['schedule']:12} m = {record['microbatches']:2}: {record['why']}")


def main() -> int:
    """Measure and print; returns 1 when a bound is missed."""
    rounds = int(sys.argv[1]) if len(sys.argv) > 1 else 9
    found = hosts()
    where = found.one_device_each()
    ranks = sum(host.slots for host in parse(where))
    print(f"p = {ranks}, on {where}", flush=True)
    bounded = ranks <= found.own_devices[0]
    if not bounded:
        print("steps are not held against a bound: ranks have no core or GPU of their own")
    holds = against_ideal(measure(where, ranks, "--alone", pieces=(MICROBATCHES,), rounds=rounds), ranks, bounded)
    bubbles(measure(where, ranks, pieces=SWEEP, rounds=min(rounds, 4)), ranks)
    return 0 if holds else 1


if __name__ == "__main__":
    sys.exit(main())
