"""What each host is asked to do in one run, and the command that a person would type for it."""

import os
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from distlab.agent import commands
from distlab.agent.job import Job, typed
from distlab.hosts import Host
from distlab.launchers import SETTINGS

# Settings of these families reach the ranks as they are at the moment of the call.
FORWARDED = ("DISTLAB_", "GLOO_", "NCCL_", "TORCH_", "TQDM_", "PYTHONFAULTHANDLER", *SETTINGS)
JOIN_SECONDS = 60.0


class Rendezvous(NamedTuple):
    """Where the ranks of one run meet, kept free on the first host under the run's id."""

    id: str
    address: str
    port: int


def make_jobs(
    hosts: Sequence[Host],
    script: Path,
    words: list[str],
    folder: Path,
    meeting: Rendezvous,
    launcher: str,
    cold: bool,
    threads: int | None,
    env: Mapping[str, str],
    until: float,
) -> dict[str, Job]:
    """The jobs of one run by host, in the order of the hosts.

    Args:
        words: arguments of the script.
        folder: the run folder.
        until: when the run's time is up, on time.monotonic()'s clock.
    """
    forwarded = {name: value for name, value in os.environ.items() if name.startswith(FORWARDED)}
    jobs, first = {}, 0
    for index, host in enumerate(hosts):
        variables = {
            "OMP_NUM_THREADS": str(threads or os.environ.get("OMP_NUM_THREADS") or host.threads(host.slots)),
            **forwarded,
            **host.environment(),
            **{name: str(value) for name, value in env.items()},
        }
        if commands.for_all(launcher):
            # torchrun sets these itself.
            variables |= {"MASTER_ADDR": meeting.address, "MASTER_PORT": str(meeting.port)}
            if not cold:
                variables["TORCHELASTIC_USE_AGENT_STORE"] = "True"
        jobs[host.name] = Job(
            id=meeting.id,
            node_rank=index,
            nnodes=len(hosts),
            nproc=host.slots,
            first_rank=first,
            master_addr=meeting.address,
            master_port=meeting.port,
            script=str(script),
            args=words,
            cwd=os.getcwd(),
            run_dir=str(folder),
            env=variables,
            cold=cold,
            launcher=launcher,
            table=[(place.name, place.slots) for place in hosts],
            join_seconds=max(1.0, min(JOIN_SECONDS, until - time.monotonic())),
            peers=None if host.kind == "simulated" else [other.name for other in hosts if other is not host],
        )
        first += host.slots
    return jobs


def to_type(jobs: Mapping[str, Job]) -> dict[str, str]:
    """What a person would type, by host: on each one for torchrun, else on the first for all."""
    first = next(iter(jobs))
    if commands.for_all(jobs[first].launcher):
        return {first: commands.typed_once(jobs[first])}
    return {host: typed(job, host) for host, job in jobs.items()}
