"""Runs notebooks from top to bottom and stores what they print: `make record`.

python tests/notebooks/record.py [NOTEBOOK ...]
"""

import os
import sys
import tempfile
import time
from pathlib import Path

import nbformat
from nbclient import NotebookClient
from policy import WORKSPACE, everything_wrong, mend, notebooks, tally

CELL_SECONDS = 180


def record(path: Path) -> None:
    """Execute one notebook in its folder and store its outputs, whole or not at all."""
    notebook = nbformat.read(path, as_version=4)
    NotebookClient(
        notebook,
        timeout=CELL_SECONDS,
        kernel_name="python3",
        record_timing=False,
        resources={"metadata": {"path": str(path.parent)}},
    ).execute()
    mend(notebook)
    nbformat.validate(notebook)
    half = path.with_suffix(".half")
    nbformat.write(notebook, half)
    os.replace(half, path)


def main(arguments: list[str]) -> int:
    """Record the named notebooks, or all; returns 1 when one is not as a lesson must be."""
    os.environ.setdefault("DISTLAB_RUNS", tempfile.mkdtemp(prefix="distlab-record-"))
    os.environ["TQDM_DISABLE"] = "1"
    wrong = 0
    for path in [Path(argument).resolve() for argument in arguments] or notebooks():
        started = time.monotonic()
        record(path)
        print(f"{path.relative_to(WORKSPACE)}: {time.monotonic() - started:.0f} s; {tally(path)}")
        for fault in everything_wrong(path):
            wrong += 1
            print(f"  {fault}")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
