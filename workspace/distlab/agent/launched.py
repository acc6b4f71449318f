"""Ranks that a launcher starts on all hosts at once, as the agent of one of these hosts sees them."""

import json
import multiprocessing
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

import psutil

from distlab.agent import commands, placeholder
from distlab.agent.job import Job
from distlab.agent.pace import pause
from distlab.agent.torchrun import LauncherError, end_with_agent
from distlab.hosts.ssh import put_ssh
from distlab.launchers import LAUNCHERS
from distlab.waiting import wait_until
from distlab.whole import write_whole

# Ranks end with their launcher, but may take this long for it.
AFTER_SECONDS = 3.0
# A launcher gets these alone, since some repeat their environment on command lines that everybody on a
# host can read; ranks get their environment from their agent.
LAUNCHER_VARIABLES = ("HOME", "USER", "LOGNAME", "LANG", "LC_ALL", "TMPDIR", "SSH_AUTH_SOCK", "LD_LIBRARY_PATH")
# Variables by which processes are found when their agent was killed.
FAMILY = "LAB_AGENT_"


class LauncherLost(LauncherError):
    """The launcher was killed; says by what."""


class Placeholders:
    """The placeholders of one job on this host, and the ranks that this agent forks for them."""

    def __init__(self, job: Job, folder: Path) -> None:
        self.job, self.folder = job, folder
        self._own = folder / "placeholders"
        # By rank: the forked rank, and the process id of its placeholder.
        self._forked: dict[int, BaseProcess] = {}
        self._pids: dict[int, int] = {}
        self._door = Path(placeholder.door(job.id, job.table[job.node_rank][0]))

    def open(self) -> None:
        """Write what placeholders need, and make the link by which they find it."""
        job = self.job
        self._own.mkdir()
        spec: dict[str, Any] = {
            "script": job.script,
            "args": job.args,
            "cwd": job.cwd,
            "env": {**os.environ, **job.env},
        }
        spec |= {"warm": not job.cold, "variables": dict(LAUNCHERS[job.launcher].variables)}
        (self.folder / "spec.json").write_text(json.dumps(spec))
        (self.folder / "spec.json").chmod(0o600)
        self._door.symlink_to(self.folder)

    def close(self) -> None:
        """Remove the link; placeholders that come later end with a message."""
        self._door.unlink(missing_ok=True)

    def _told(self, ending: str) -> dict[int, dict[str, Any]]:
        found = {}
        for file in self._own.glob(f"rank*.{ending}"):
            with suppress(OSError, ValueError):
                found[int(file.stem[4:])] = json.loads(file.read_text())
        return found

    def tend(self) -> dict[int, int]:
        """Fork the ranks that placeholders ask for, tell which have ended, kill those whose placeholder is gone.

        Returns:
            Process ids of all ranks that were forked, by rank.
        """
        # Once all are forked no file is looked for: a look takes the cores on which ranks compute.
        if len(self._forked) < self.job.nproc:
            for rank, asked in self._told("asks").items():
                if rank not in self._forked:
                    self._fork(rank, asked)
        for rank, process in self._forked.items():
            file = self._own / f"rank{rank}.ended"
            if process.exitcode is not None and not file.exists():
                write_whole(file, json.dumps({"status": process.exitcode, "time": time.time()}))
            elif process.exitcode is None and not psutil.pid_exists(self._pids[rank]):
                process.kill()
        return {rank: process.pid for rank, process in self._forked.items() if process.pid is not None}

    def _fork(self, rank: int, asked: dict[str, Any]) -> None:
        from distlab.agent.rank import run_for_launcher

        job = self.job
        spec = {"script": job.script, "args": job.args, "cwd": job.cwd, "env": asked["env"], "logs": asked["logs"]}
        forked = multiprocessing.get_context("forkserver").Process(target=run_for_launcher, args=(spec,))
        forked.start()
        self._forked[rank], self._pids[rank] = forked, asked["pid"]
        write_whole(self._own / f"rank{rank}.started", json.dumps({"pid": asked["pid"], "child": forked.pid}))

    def statuses(self) -> dict[int, int]:
        """Exit status of each rank that failed, the first that ended first."""
        ended = sorted(self._told("ended").items(), key=lambda ending: ending[1]["time"])
        return {rank: ending["status"] for rank, ending in ended if ending["status"]}

    def processes(self) -> list[psutil.Process]:
        """Placeholders of this host that still run, with their ranks and all that these started."""
        found = []
        for started in self._told("started").values():
            for pid in (started["pid"], started["child"]):
                with suppress(psutil.Error):
                    process = psutil.Process(pid)
                    if process.uids().real == os.getuid() and process.status() != psutil.STATUS_ZOMBIE:
                        found += [process, *process.children(recursive=True)]
        return found

    def everyone_ended(self) -> bool:
        """True when all ranks of this host have come and gone."""
        return len(self._told("ended")) == self.job.nproc and not self.processes()


def _launcher_environment(job: Job, folder: Path) -> dict[str, str]:
    known = {name: value for name, value in os.environ.items() if name in LAUNCHER_VARIABLES or name.startswith(FAMILY)}
    path = [str(Path(sys.executable).parent), os.environ.get("PATH", os.defpath)]
    if job.env.get("DISTLAB_SSH"):
        path.insert(0, str(put_ssh(folder, job.env["DISTLAB_SSH"])))
    return {**known, "PATH": os.pathsep.join(path), "PYTHONUNBUFFERED": "1"}


def _start(job: Job, folder: Path, said: Path) -> subprocess.Popen[bytes]:
    table = ",".join(f"{name}:{slots}" for name, slots in job.table)
    rank_variable = LAUNCHERS[job.launcher].variables["rank"]
    program = [sys.executable, "-S", str(Path(placeholder.__file__).resolve()), job.id, table, rank_variable]
    with said.open("w") as file:
        return subprocess.Popen(
            commands.real(job, program),
            env=_launcher_environment(job, folder),
            cwd=folder,
            stdin=subprocess.DEVNULL,
            stdout=file,
            stderr=file,
            preexec_fn=end_with_agent,
        )


def run(
    placeholders: Placeholders, stopped: Callable[[], bool], born: Callable[[Mapping[int, int]], None]
) -> Mapping[int, int]:
    """See a job's ranks of this host to their end; on the first host, start the launcher for all.

    Args:
        stopped: True when the job was stopped meanwhile.
        born: takes the process ids of ranks that were forked here, by rank, as soon as there are more.

    Returns:
        Exit status of each rank of this host that failed.

    Raises:
        LauncherError: the launcher failed, and no rank of this host.
        LauncherLost: the launcher was killed.
    """
    job, folder = placeholders.job, placeholders.folder
    said = folder / "launcher.txt"
    placeholders.open()
    started = time.monotonic()
    forked: dict[int, int] = {}

    def look() -> None:
        nonlocal forked
        before, forked = forked, placeholders.tend()
        if forked.keys() != before.keys():
            born(forked)

    def no_rank_is_left() -> bool:
        look()
        return not placeholders.processes()

    try:
        launcher = _start(job, folder, said) if job.node_rank == 0 else None
        while not stopped():
            look()
            over = launcher is not None and launcher.poll() is not None
            if over or (launcher is None and placeholders.everyone_ended()):
                break
            time.sleep(pause(time.monotonic() - started))
        if launcher is not None:
            wait_until(lambda: stopped() or no_rank_is_left(), AFTER_SECONDS)
    finally:
        placeholders.close()
    statuses = placeholders.statuses()
    if launcher is not None and not stopped():
        if launcher.returncode < 0:
            raise LauncherLost(f"{job.launcher} was killed by {signal.Signals(-launcher.returncode).name}")
        if launcher.returncode and not statuses:
            raise LauncherError(_why(job, said.read_text(errors="replace"), launcher.returncode))
    return statuses


def _why(job: Job, text: str, status: int) -> str:
    """What a launcher says before it gives up, in one sentence."""
    lines = [line.strip(" -*") for line in text.splitlines() if line.strip(" -*")]
    lost = [line for line in lines if "finds no agent" in line]
    likely = [line for line in lines if any(word in line for word in ("rror", "not ", "refused", "denied", "unable"))]
    said = (lost or likely or lines or [f"it ended with status {status}"])[0]
    # Some put the rank in front.
    return f"{job.launcher}: {said.partition('<stderr>:')[2] or said}"
