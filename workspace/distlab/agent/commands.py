"""The commands of the launchers that start the ranks of all hosts from the first of them."""

import os
import shlex
import sys
from collections.abc import Sequence
from pathlib import Path

from distlab.agent.job import Job, script_words
from distlab.hosts.interface import horovods_name, leading_to, network_of

LAUNCHERS = ("mpirun", "horovodrun", "horovodrun-mpi")
# What a launcher is told in place of simulated hosts, whose names no other program can resolve.
HERE, LOOPBACK = "localhost", "lo"
# Variables that Open MPI must be told to hand on to the ranks of other hosts.
HANDED_ON = ("MASTER_ADDR", "MASTER_PORT", "OMP_NUM_THREADS")
SETTINGS = {
    # Otherwise a rank that waits keeps a whole core busy.
    "mpi_yield_when_idle": "1",
    # In a container no process may read another's memory, and Open MPI prints many lines about it.
    "btl_vader_single_copy_mechanism": "none",
}


def hosts(job: Job) -> str:
    """The hosts as a launcher takes them: `node1:2,node2:2`."""
    if job.peers is None:
        return f"{HERE}:{sum(slots for _, slots in job.table)}"
    (first, slots), *others = job.table
    first = first if job.launcher == "mpirun" else horovods_name(first)
    return ",".join(f"{name}:{slots}" for name, slots in [(first, slots), *others])


def _mca(**settings: str) -> list[str]:
    return [word for name, value in settings.items() for word in ("--mca", name, value)]


def _command(job: Job, program: Sequence[str], bin: str, handed: Sequence[str]) -> list[str]:
    interface = LOOPBACK if job.peers is None else leading_to(job.peers)
    # As addresses, since the same network may have another interface name on another host.
    network = LOOPBACK if job.peers is None else interface and network_of(interface)
    ranks = str(sum(slots for _, slots in job.table))
    # In a shell over ssh Open MPI is not on PATH.
    prefix = ["--prefix", sys.prefix] if bin and job.peers else []
    # Without other hosts Open MPI needs no ssh, and would fail where none is installed unless told so.
    settings = _mca(**SETTINGS, **({} if job.peers else {"plm": "isolated"}))
    if job.launcher == "mpirun":
        root = ["--allow-run-as-root"] if os.geteuid() == 0 else []
        meet = _mca(btl_tcp_if_include=network, oob_tcp_if_include=network) if network else []
        placed = ["-bind-to", "none", "-map-by", "slot", *prefix, *settings, *meet]
        exported = [word for name in handed for word in ("-x", name)]
        return [f"{bin}mpirun", "-n", ranks, "-H", hosts(job), *root, *placed, *exported, *program]
    meet = ["--network-interfaces", interface] if interface else []
    waiting = ["--start-timeout", str(max(1, int(job.join_seconds))), "--disable-cache"]
    placed = ["-np", ranks, "-H", hosts(job), *meet, *waiting]
    if job.launcher == "horovodrun":
        return [f"{bin}horovodrun", "--gloo", *placed, *program]
    return [f"{bin}horovodrun", "--mpi", *placed, f"--mpi-args={shlex.join([*prefix, *settings])}", *program]


def real(job: Job, program: Sequence[str]) -> list[str]:
    """What an agent starts, with whole paths; each rank runs `program`."""
    return _command(job, program, f"{Path(sys.executable).parent}{os.sep}", ())


def typed_once(job: Job) -> str:
    """What a person would type on the first host to start the same ranks on all of them."""
    handed = [name for name in HANDED_ON if name in job.env]
    settings = " ".join(f"{name}={shlex.quote(job.env[name])}" for name in handed)
    return f"{settings} {shlex.join(_command(job, ['python', *script_words(job)], '', handed))}"
