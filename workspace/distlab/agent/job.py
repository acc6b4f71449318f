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
    # torchrun, or one that starts the ranks of all hosts from the first of them: see `launched`.
    launcher: str = "torchrun"
    # Every host and its ranks, in rank order.
    table: list[tuple[str, int]] = field(default_factory=list)
    # Names of the other hosts; None for a simulated host, whose interface is loopback whatever the others are.
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


def script_words(job: Job) -> list[str]:
    """The script and its arguments as one would type them where the job was started."""
    script = os.path.relpath(job.script, job.cwd)
    return [script if not script.startswith("../..") else job.script, *job.args]


def typed(job: Job, host: str) -> str:
    """The torchrun command that a person would type on this host to start the same ranks."""
    threads = job.env.get("OMP_NUM_THREADS", "1")
    words = ["torchrun", *flags(job), *script_words(job)]
    return f"DISTLAB_HOST={host} OMP_NUM_THREADS={threads} {shlex.join(words)}"
