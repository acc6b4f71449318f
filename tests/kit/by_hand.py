"""Starts ranks as by hand, each with its variables, but from a process that has torch imported."""

import multiprocessing
import os
import sys
import traceback
from dataclasses import dataclass
from multiprocessing.process import BaseProcess
from pathlib import Path

context = multiprocessing.get_context("forkserver")
context.set_forkserver_preload(["torch", "torch.distributed", "distlab.process"])

LAUNCHED = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "GROUP_RANK", "MASTER_ADDR", "MASTER_PORT")


def _be_rank(code: str, variables: dict[str, str], folder: str, out: str, err: str) -> None:
    for name in LAUNCHED:
        os.environ.pop(name, None)
    os.environ.update(variables)
    os.chdir(folder)
    sys.stdout, sys.stderr = open(out, "w", buffering=1), open(err, "w", buffering=1)
    try:
        exec(code, {"__name__": "__main__"})
    except Exception:
        traceback.print_exc()
        sys.exit(1)


@dataclass
class Started:
    """A rank under way."""

    process: BaseProcess
    out: Path
    err: Path

    def end(self, within: float = 30) -> tuple[int, str, str]:
        """Its status, stdout and stderr; it is killed when it takes too long."""
        self.process.join(within)
        late = self.process.is_alive()
        if late:
            self.process.kill()
            self.process.join()
        assert not late, f"still running after {within} s: {self.err.read_text()}"
        return self.process.exitcode, self.out.read_text(), self.err.read_text()


def start(folder: Path, code: str, **variables: object) -> Started:
    """Start one rank in `folder` with these variables; those that are None stay unset."""
    number = len(list(folder.glob("rank*.out")))
    out, err = folder / f"rank{number}.out", folder / f"rank{number}.err"
    out.touch()
    common = {"OMP_NUM_THREADS": 1, "DISTLAB_RUNS": folder / "runs", "DISTLAB_DEVICE": "cpu"}
    environ = {name: str(value) for name, value in (common | variables).items() if value is not None}
    process = context.Process(target=_be_rank, args=(code, environ, str(folder), str(out), str(err)))
    process.start()
    return Started(process, out, err)
