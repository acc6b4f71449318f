"""What a host is told to start, and how a person would type it."""

import os
import shlex
from dataclasses import dataclass, field


@dataclass
class Job:
    """One start of one script, as one host sees it."""

    id: str
    node_rank: int
    nnodes: int
    nproc: int
    first_rank: int
    master_addr: str
    master_port: int
    script: str
    args: list[str]
    cwd: str
    run_dir: str
    env: dict[str, str] = field(default_factory=dict)
    cold: bool = False
    join_seconds: float = 60.0
    # Names of the other hosts, or None when this host is simulated and loopback is set already.
    peers: list[str] | None = None


def flags(job: Job) -> list[str]:
    """torchrun's flags for this host: static rendezvous, so that ranks are where one expects."""
    return [
        *("--nnodes", str(job.nnodes)),
        *("--node-rank", str(job.node_rank)),
        *("--nproc-per-node", str(job.nproc)),
        *("--master-addr", job.master_addr),
        *("--master-port", str(job.master_port)),
    ]


def typed(job: Job, host: str) -> str:
    """The command that a person would type on this host to start the same ranks."""
    threads = job.env.get("OMP_NUM_THREADS", "1")
    script = os.path.relpath(job.script, job.cwd)
    words = ["torchrun", *flags(job), script if not script.startswith("../..") else job.script, *job.args]
    return f"DISTLAB_HOST={host} OMP_NUM_THREADS={threads} {shlex.join(words)}"
