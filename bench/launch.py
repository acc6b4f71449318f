"""What starting four ranks on two hosts costs, against bare torchrun starting the same four.

    distlab bench launch [RUNS]

Two scripts: an empty one, and one whose ranks meet at a barrier. Commands take turns, so that a
machine that slows down slows all of them.
"""

import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from _ratio import say_ratio, say_times
from distlab import run

SCRIPTS = {
    "empty": "",
    "barrier": """
import torch.distributed as dist
dist.init_process_group("gloo")
dist.barrier()
dist.destroy_process_group()
""",
}
BIN = Path(sys.executable).parent
HOSTS = "node1:2,node2:2"


def bare(script: Path) -> float:
    """Seconds of two torchruns of two ranks each, started at once as on two hosts."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    started = time.monotonic()
    torchruns = [
        subprocess.Popen(
            [BIN / "torchrun", "--nnodes", "2", "--node-rank", str(index), "--nproc-per-node", "2"]
            + ["--master-addr", "127.0.0.1", "--master-port", str(port), script],
            stderr=subprocess.DEVNULL,
        )
        for index in range(2)
    ]
    # All must be waited for, also when the first has failed.
    statuses = [torchrun.wait() for torchrun in torchruns]
    if any(statuses):
        raise SystemExit("bare torchrun failed")
    return time.monotonic() - started


def command(script: Path, *flags: str) -> float:
    """Seconds of the `distlab run` command, from its start to its end."""
    started = time.monotonic()
    subprocess.run([BIN / "distlab", "run", "--hosts", HOSTS, *flags, script], stdout=subprocess.DEVNULL, check=True)
    return time.monotonic() - started


def main() -> int:
    """Measure and print; returns 1 when a bound is missed."""
    runs = int(sys.argv[1]) if len(sys.argv) > 1 else 3
    holds = []
    with tempfile.TemporaryDirectory() as folder:
        for name, text in SCRIPTS.items():
            script = Path(folder) / f"{name}.py"
            script.write_text(text)
            bare(script)
            run(script, hosts=HOSTS, quiet=True)
            seconds: dict[str, list[float]] = {"bare torchrun": [], "--cold": [], "command": [], "notebook": []}
            for _ in range(runs):
                seconds["bare torchrun"].append(bare(script))
                seconds["--cold"].append(command(script, "--cold"))
                seconds["command"].append(command(script))
                seconds["notebook"].append(run(script, hosts=HOSTS, quiet=True).seconds)
            for what, values in seconds.items():
                say_times(f"{name}: {what}", values, "s")
            base = seconds["bare torchrun"]
            holds.append(say_ratio(f"{name}: distlab run --cold / bare torchrun", seconds["--cold"], base, most=1.15))
            if name == "barrier":
                holds.append(say_ratio(f"{name}: distlab run / bare torchrun", seconds["command"], base, most=1.15))
            holds.append(
                say_ratio(f"{name}: run() with warm agents / bare torchrun", seconds["notebook"], base, most=0.1)
            )
    return 0 if all(holds) else 1


if __name__ == "__main__":
    sys.exit(main())
