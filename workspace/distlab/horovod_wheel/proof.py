"""Is the Horovod of this environment right? Asked of processes of its own, under each launcher."""

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

from distlab.errors import DistlabError

SECONDS = 180
RANKS = 2
WHAT_IS_BUILT = """
import json, horovod.torch as hvd
print(json.dumps({"gloo": hvd.gloo_built(), "mpi": hvd.mpi_built(), "nccl": bool(hvd.nccl_built())}))
"""
ALLREDUCE = f"""
import torch, horovod.torch as hvd
hvd.init()
total = hvd.allreduce(torch.arange(4.0) + hvd.rank(), op=hvd.Sum)
assert hvd.size() == {RANKS} and total.tolist() == [1.0, 3.0, 5.0, 7.0], (hvd.size(), total.tolist())
"""


class NotProved(DistlabError, RuntimeError):
    """The wheel does not do what was asked of it; says what."""


def _bin(name: str) -> str:
    return str(Path(sys.executable).parent / name)


def launchers() -> dict[str, list[str]]:
    """How each launcher starts RANKS ranks on this machine."""
    here = ["-np", str(RANKS), "-H", f"localhost:{RANKS}"]
    # As root, with fewer cores than ranks, and where there is no ssh, Open MPI wants to be told that this is meant.
    meant = ["--oversubscribe", "--mca", "plm", "isolated"]
    mpirun = [_bin("mpirun"), "--allow-run-as-root", *meant, *here]
    return {
        "mpirun": mpirun,
        "horovodrun --gloo": [_bin("horovodrun"), "--gloo", *here],
        "horovodrun --mpi": [_bin("horovodrun"), "--mpi", f"--mpi-args={' '.join(meant)}", *here],
    }


def prove(nccl: bool, tell: Callable[[str, int], None] = lambda *_: None) -> None:
    """See that Horovod has what was asked for, and adds up rightly under each launcher.

    Raises:
        NotProved: it does not; says what and where.
    """
    tell("asking Horovod what it has", 0)
    built = json.loads(_run("importing horovod.torch", [sys.executable, "-c", WHAT_IS_BUILT]).splitlines()[-1])
    missing = [name for name in ("gloo", "mpi", *(["nccl"] if nccl else [])) if not built[name]]
    if missing:
        raise NotProved(f"Horovod was built without {' and '.join(missing)}")
    for name, words in launchers().items():
        tell(f"proving an allreduce under {name}", 0)
        _run(f"an allreduce under {name}", [*words, sys.executable, "-c", ALLREDUCE])


def _run(what: str, words: list[str]) -> str:
    # On the CPU, as every machine has one; and nothing of a run that this may be called from.
    environ = {name: value for name, value in os.environ.items() if not name.startswith(("OMPI_", "PMIX_", "HOROVOD_"))}
    environ |= {"CUDA_VISIBLE_DEVICES": "", "OMP_NUM_THREADS": "1", "PATH": f"{_bin('')}:{os.environ.get('PATH', '')}"}
    try:
        done = subprocess.run(
            words, env=environ, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=SECONDS, check=False
        )
    except subprocess.TimeoutExpired:
        raise NotProved(f"{what} did not end within {SECONDS} s") from None
    if done.returncode:
        said = [line.strip() for line in (done.stderr + done.stdout).splitlines() if line.strip()]
        likely = [line for line in said if "Error" in line] or said or [f"status {done.returncode}"]
        raise NotProved(f"{what} failed: {likely[-1]}")
    return done.stdout
