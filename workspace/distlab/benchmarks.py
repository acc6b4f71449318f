"""Finds and runs a benchmark of the repository's bench/ folder."""

import subprocess
import sys
from pathlib import Path

from distlab.course import CourseError
from distlab.runs import WORKSPACE


def bench_folder() -> Path:
    """Where benchmarks live: beside the workspace, in a clone of the repository."""
    return WORKSPACE.parent / "bench"


def run_benchmark(name: str, words: list[str]) -> int:
    """Run bench/NAME.py in a process of its own; returns its status.

    Raises:
        CourseError: there is no such benchmark; says which there are.
    """
    names = sorted(path.stem for path in bench_folder().glob("*.py") if not path.stem.startswith("_"))
    if name not in names:
        known = (
            f"there are {', '.join(names)}"
            if names
            else f"benchmarks need a clone of the repository ({bench_folder()})"
        )
        raise CourseError(f"no benchmark {name!r}: {known}")
    return subprocess.run([sys.executable, str(bench_folder() / f"{name}.py"), *words], check=False).returncode
