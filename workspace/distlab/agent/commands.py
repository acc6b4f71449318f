"""The commands of launchers that start the ranks of all hosts from the first of them."""

import os
import shlex
import sys
from collections.abc import Sequence
from pathlib import Path

from distlab.agent.job import Job, script_words
from distlab.launchers import LAUNCHERS, Start

# Variables that every rank needs; some launchers hand on only those that they are told to.
HANDED_ON = ("MASTER_ADDR", "MASTER_PORT", "OMP_NUM_THREADS")


def for_all(launcher: str) -> bool:
    """True when one command starts the ranks of all hosts, and False when each host's agent starts its own."""
    return LAUNCHERS[launcher].command is not None


def _command(job: Job, program: Sequence[str], bin: str = "", exported: Sequence[str] = ()) -> list[str]:
    command = LAUNCHERS[job.launcher].command
    if command is None:
        raise ValueError(f"with {job.launcher} each host starts its own ranks")
    return command(Start(program, job.table, job.peers, job.join_seconds, bin, exported))


def real(job: Job, program: Sequence[str]) -> list[str]:
    """What an agent starts, with whole paths; each rank runs `program`."""
    return _command(job, program, f"{Path(sys.executable).parent}{os.sep}")


def typed_once(job: Job) -> str:
    """What a person would type on the first host to start the same ranks on all of them."""
    handed = [name for name in HANDED_ON if name in job.env]
    settings = " ".join(f"{name}={shlex.quote(job.env[name])}" for name in handed)
    return f"{settings} {shlex.join(_command(job, ['python', *script_words(job)], exported=handed))}"
