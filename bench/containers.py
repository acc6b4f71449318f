"""What containers cost: the time until both nodes are healthy, and training across them.

    distlab bench containers [RUNS]

The image is built before. Training on node1 and node2 takes turns with training on two hosts that
node1 simulates, so both run the same image on the same cores; the difference is the bridge between
the containers, and ssh.
"""

import json
import sys
import time

from _ratio import say_ratio, say_times
from distlab.classroom import engine, gpus, seats, settings
from distlab.classroom.project import Project
from distlab.classroom.proof import clear, make
from distlab.classroom.settings import ROOT, ClassroomError

NAME = "distlab-bench"
FOLDER = ROOT / "seats" / "bench"
# Beyond the last seat and the number that preflight takes.
NUMBER = seats.LAST + 2
UP_SECONDS = 20
RUN_SECONDS = 300
COMMAND = ("distlab", "run", "ddp", "--json", "--", "--epochs", "1", "--limit", "24576", "--batch-size", "256")
HERE = {"across containers": "ssh", "on simulated hosts": "simulated"}


def seconds_until_healthy(project: Project) -> float:
    """Start both nodes and wait for them."""
    began = time.monotonic()
    project.start()
    project.wait()
    return time.monotonic() - began


def images_per_second(project: Project, transport: str) -> float:
    """Training images per second of all ranks together, started from node1, the first update left out."""
    node1 = project.nodes()["node1"].id
    words = ("docker", "exec", "-e", f"DISTLAB_TRANSPORT={transport}", "-e", "TQDM_DISABLE=1", node1, *COMMAND)
    done = engine.ask(*words, seconds=RUN_SECONDS)
    result = json.loads(done.stdout.strip().splitlines()[-1])
    if not result["ok"]:
        raise ClassroomError("the training failed", str(result["error"]))
    ends = [record for own in result["metrics"].values() for record in own if record["event"] == "end"]
    return sum(end["images_per_second"] for end in ends)


def main() -> int:
    """Measure and print; returns 1 when a bound is missed."""
    runs = int(sys.argv[1]) if len(sys.argv) > 1 else 5
    chosen = settings.load()
    try:
        engine.engine_version()
    except ClassroomError as error:
        print(f"left out: {error}")
        return 0
    project = make(chosen, gpus.choose(chosen), NAME, FOLDER, NUMBER)
    healthy, speed = [], {name: [] for name in HERE}
    try:
        for _ in range(runs):
            project.remove()
            healthy.append(seconds_until_healthy(project))
        for transport in HERE.values():
            images_per_second(project, transport)
        for _ in range(runs):
            for name, transport in HERE.items():
                speed[name].append(images_per_second(project, transport))
    finally:
        clear(project, FOLDER)
    say_times("both nodes healthy", healthy, "s")
    for name, values in speed.items():
        say_times(name, values, "images/s")
    across, simulated = speed.values()
    holds = [
        say_ratio(f"both nodes healthy / {UP_SECONDS} s", healthy, [UP_SECONDS] * runs, most=1),
        say_ratio("across containers / on simulated hosts", across, simulated, least=0.9),
    ]
    return 0 if all(holds) else 1


if __name__ == "__main__":
    sys.exit(main())
