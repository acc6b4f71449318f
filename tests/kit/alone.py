"""One process alone, which is this one: scripts and experiments that need no others."""

from contextlib import contextmanager
from pathlib import Path

import pytest


@contextmanager
def in_folder(folder: Path):
    """Whatever joins now is one rank of one on the CPU, with this run folder."""
    with pytest.MonkeyPatch.context() as patch:
        for name in ("RANK", "WORLD_SIZE", "LOCAL_RANK", "MASTER_PORT"):
            patch.delenv(name, raising=False)
        patch.setenv("DISTLAB_RUN_DIR", str(folder))
        patch.setenv("DISTLAB_DEVICE", "cpu")
        yield patch


def report_of(experiment: object, folder: Path, *words: object) -> list[dict]:
    """The records of an experiment's `main()` with these command-line words."""
    from distlab import report

    with in_folder(folder) as patch:
        patch.setattr("sys.argv", [experiment.__name__, *map(str, words)])
        experiment.main()
    return report.read(folder)
