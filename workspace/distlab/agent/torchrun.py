"""The two ways to start a host's ranks with torchrun: warm in its own elastic agent, or cold."""

import inspect
import logging
import multiprocessing
import os
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

from distlab.agent.job import Job, flags
from distlab.agent.pace import pause
from distlab.errors import DistlabError
from distlab.parent import end_with_parent

# SIGTERM, not SIGKILL: a launcher then stops its ranks, which live in sessions of their own or on other hosts.
end_with_agent = partial(end_with_parent, signal.SIGTERM)


def open_store(server: socket.socket) -> object:
    """The job's rendezvous store, served on a socket that is open already.

    torchrun's elastic agent opens a store on the same port in the same process, and shares this one since
    both are multi-tenant. So no other process can take the port in between, and the store listens on
    the hosts' network alone.
    """
    from torch.distributed import TCPStore

    address, port = server.getsockname()
    return TCPStore(
        address,
        port,
        is_master=True,
        wait_for_workers=False,
        multi_tenant=True,
        master_listen_fd=server.detach(),
    )


class LauncherError(DistlabError, RuntimeError):
    """The launcher failed, and no rank did; says why."""


def _nothing() -> None:
    pass


def warm() -> None:
    """Start the server that forks ranks and import what they need there; CUDA is not touched."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["distlab.agent.preload"])
    probe = context.Process(target=_nothing)
    # start() returns at once, so the server and this process import at the same time.
    probe.start()
    import torch.distributed.launcher.api  # noqa: F401

    # To log a traceback torch imports its compiler, which delays the news of a failure by seconds.
    for part in ("multiprocessing.api", "agent.server.api"):
        logging.getLogger(f"torch.distributed.elastic.{part}").disabled = True
    probe.join()


def _shutdown_timeout(elastic: type) -> dict[str, Any]:
    # Older releases of torch lack the argument; there the run is stopped as soon as `pulse` sees the first failure.
    return {"shutdown_timeout": 2} if "shutdown_timeout" in inspect.signature(elastic).parameters else {}


def run_warm(job: Job, logs: Path, born: Callable[[Mapping[int, int]], None]) -> dict[int, int]:
    """Run a job's ranks of this host in forked processes.

    Args:
        born: takes the ranks' process ids, by rank, as soon as they are forked.

    Returns:
        Exit status of each rank that failed; empty when all went well.
    """
    from torch.distributed.elastic.agent.server import RunResult, WorkerGroup, WorkerSpec
    from torch.distributed.elastic.agent.server.local_elastic_agent import LocalElasticAgent
    from torch.distributed.elastic.multiprocessing import DefaultLogsSpecs, Std
    from torch.distributed.elastic.rendezvous import RendezvousParameters, registry

    from distlab.agent.rank import run_script

    class Elastic(LocalElasticAgent):
        def _start_workers(self, worker_group: WorkerGroup) -> dict[int, int]:
            pids: dict[int, int] = super()._start_workers(worker_group)
            born({job.first_rank + local_rank: pid for local_rank, pid in pids.items()})
            self._started = time.monotonic()
            return pids

        def _monitor_workers(self, worker_group: WorkerGroup) -> RunResult:
            time.sleep(pause(time.monotonic() - self._started))
            seen: RunResult = super()._monitor_workers(worker_group)
            return seen

    meeting = RendezvousParameters(
        backend="static",
        endpoint=f"{job.master_addr}:{job.master_port}",
        run_id=job.id,
        min_nodes=job.nnodes,
        max_nodes=job.nnodes,
        rank=job.node_rank,
        timeout=int(job.join_seconds),
    )
    work = WorkerSpec(
        role="default",
        local_world_size=job.nproc,
        entrypoint=run_script,
        args=({"script": job.script, "args": job.args, "cwd": job.cwd, "env": job.env},),
        rdzv_handler=registry.get_rendezvous_handler(meeting),
        max_restarts=0,
        # Nearly nothing, since _monitor_workers sleeps.
        monitor_interval=0.001,
        master_addr=job.master_addr,
        master_port=job.master_port,
    )
    elastic = Elastic(
        work,
        DefaultLogsSpecs(log_dir=str(logs), redirects=Std.ALL),
        start_method="forkserver",
        # To wait here for the other hosts would block this thread, also for a stop; the store stays
        # open anyway until the notebook has heard from all hosts.
        exit_barrier_timeout=0.01,
        **_shutdown_timeout(LocalElasticAgent),
    )
    return {rank: failure.exitcode for rank, failure in elastic.run().failures.items()}


def _statuses(said: str) -> dict[int, int]:
    """Exit status of each failed rank, from the summary that torchrun prints at its end.

    The one that torchrun saw first comes first; torchrun names it last.
    """
    entries = re.findall(r"rank\s*: (\d+) \(local_rank: \d+\)\s*exitcode\s*: (-?\d+)", said)
    return {int(rank): int(status) for rank, status in reversed(entries)}


def run_cold(job: Job, logs: Path) -> dict[int, int]:
    """Run a job's ranks of this host with the torchrun command itself.

    Returns:
        Exit status of each rank that failed; empty when all went well.

    Raises:
        LauncherError: torchrun itself failed, and no rank of this host.
    """
    beside = Path(sys.executable).with_name("torchrun")
    torchrun = [str(beside)] if beside.exists() else [sys.executable, "-m", "torch.distributed.run"]
    watching = ["--monitor-interval", "0.03", "--log-dir", str(logs), "--redirects", "3"]
    with (logs / "torchrun.txt").open("w+") as said:
        started = subprocess.run(
            [*torchrun, *flags(job), *watching, job.script, *job.args],
            env={**os.environ, **job.env, "PYTHONUNBUFFERED": "1", "TORCH_ELASTIC_SHUTDOWN_TIMEOUT": "2"},
            cwd=job.cwd,
            stdin=subprocess.DEVNULL,
            stderr=said,
            preexec_fn=end_with_agent,
            check=False,
        )
        said.seek(0)
        text = said.read()
    if not started.returncode:
        return {}
    statuses = _statuses(text)
    if not statuses and started.returncode < 0:
        raise LauncherError(f"torchrun was killed by {signal.Signals(-started.returncode).name}")
    if not statuses:
        # No rank failed; torchrun itself did, and its last line says why.
        lines = [line for line in text.splitlines() if line.strip()]
        raise LauncherError(lines[-1] if lines else f"torchrun ended with status {started.returncode}")
    return statuses
