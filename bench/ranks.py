"""What a cell costs in live ranks, against a warm run of a script that does the same.

    distlab bench ranks [RUNS]

Four ranks on two hosts meet at a barrier, in a cell and in a script by turns.
"""

import contextlib
import io
import sys
import tempfile
import time
from pathlib import Path

from _ratio import say_ratio, say_times
from distlab import run
from distlab.ranks.cell import run_cell
from distlab.ranks.live import LiveRanks

HOSTS = "node1:2,node2:2"
SCRIPT = """
import torch.distributed as dist
from distlab import process
with process.group():
    dist.barrier()
"""


def cell(live: LiveRanks) -> float:
    """Seconds of one cell, from its start to what it shows."""
    started = time.monotonic()
    with contextlib.redirect_stdout(io.StringIO()):
        run_cell(live, "dist.barrier()\nme.rank", list(range(live.size)))
    return time.monotonic() - started


def main() -> int:
    """Measure and print; returns 1 when a bound is missed."""
    runs = int(sys.argv[1]) if len(sys.argv) > 1 else 5
    with tempfile.TemporaryDirectory() as folder:
        script = Path(folder) / "barrier.py"
        script.write_text(SCRIPT)
        run(script, hosts=HOSTS, quiet=True)
        started = time.monotonic()
        with LiveRanks(HOSTS) as live:
            say_times("live ranks, from nothing", [time.monotonic() - started], "s")
            cell(live)
            cells, scripts = [], []
            for _ in range(runs):
                cells.append(cell(live))
                scripts.append(run(script, hosts=HOSTS, quiet=True).seconds)
    say_times("a cell in live ranks", [1000 * seconds for seconds in cells], "ms")
    say_times("a warm run", [1000 * seconds for seconds in scripts], "ms")
    return 0 if say_ratio("a cell / a warm run", cells, scripts, most=0.2) else 1


if __name__ == "__main__":
    sys.exit(main())
