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

import psutil

from distlab.agent import commands, seat
from distlab.agent.job import Job
from distlab.agent.pace import pause
from distlab.agent.torchrun import TorchrunError
from distlab.hosts.ssh import put_ssh
from distlab.launchers import LAUNCHERS

# How long ranks may outlive their launcher; they end with it.
AFTER_SECONDS = 3.0
# Of all that an agent may know, a launcher needs no more. Some repeat what they know on command
# lines that everybody on a host can read; ranks get theirs from their agent.
LAUNCHER_VARIABLES = ("HOME", "USER", "LOGNAME", "LANG", "LC_ALL", "TMPDIR", "SSH_AUTH_SOCK", "LD_LIBRARY_PATH")
# What is left of an agent that was killed is found by variables of this family.
FAMILY = "LAB_AGENT_"


class LauncherLost(TorchrunError):
    """The launcher was killed; says by what."""


class Seats:
    """The seats of one job on this host."""

    def __init__(self, job: Job, folder: Path) -> None:
        self._job, self._folder = job, folder
        self._own = folder / "seats"
        # By rank, where the agent forks them: the rank, and the process id of its seat.
        self._forked: dict[int, BaseProcess] = {}
        self._seated: dict[int, int] = {}
        self._door = Path(seat.door(job.id, job.table[job.node_rank][0]))

    def open(self) -> None:
        """Let seats in: what they need lies ready, under a name that they know."""
        job = self._job
        self._own.mkdir()
        spec = {"script": job.script, "args": job.args, "cwd": job.cwd, "env": {**os.environ, **job.env}}
        spec |= {"warm": not job.cold, "variables": dict(LAUNCHERS[job.launcher].variables)}
        (self._folder / "spec.json").write_text(json.dumps(spec))
        (self._folder / "spec.json").chmod(0o600)
        self._door.symlink_to(self._folder)

    def close(self) -> None:
        """Let nobody in any more."""
        self._door.unlink(missing_ok=True)

    def _told(self, ending: str) -> dict[int, dict]:
        found = {}
        for file in self._own.glob(f"rank*.{ending}"):
            with suppress(OSError, ValueError):
                found[int(file.stem[4:])] = json.loads(file.read_text())
        return found

    def tend(self) -> dict[int, int]:
        """Fork the ranks that seats ask for, say which have ended, and end those whose seat is gone.

        Returns:
            Process ids of all ranks that were forked, by rank.
        """
        # What is known is not looked for again: a look takes the cores on which ranks compute.
        if len(self._forked) < self._job.nproc:
            for rank, asked in self._told("asks").items():
                if rank not in self._forked:
                    self._fork(rank, asked)
        for rank, one in self._forked.items():
            file = self._own / f"rank{rank}.ended"
            if one.exitcode is not None and not file.exists():
                seat.write(str(file), {"status": one.exitcode, "time": time.time()})
            elif one.exitcode is None and not psutil.pid_exists(self._seated[rank]):
                one.kill()
        return {rank: one.pid for rank, one in self._forked.items()}

    def _fork(self, rank: int, asked: dict) -> None:
        from distlab.agent.rank import run_seated

        job = self._job
        spec = {"script": job.script, "args": job.args, "cwd": job.cwd, "env": asked["env"], "logs": asked["logs"]}
        forked = multiprocessing.get_context("forkserver").Process(target=run_seated, args=(spec,))
        forked.start()
        self._forked[rank], self._seated[rank] = forked, asked["pid"]
        seat.write(str(self._own / f"rank{rank}.sits"), {"pid": asked["pid"], "child": forked.pid})

    def statuses(self) -> dict[int, int]:
        """Exit status of each rank that failed, the first that ended first."""
        ended = sorted(self._told("ended").items(), key=lambda one: one[1]["time"])
        return {rank: one["status"] for rank, one in ended if one["status"]}

    def processes(self) -> list[psutil.Process]:
        """Seats of this host that are still taken, with all that their ranks started."""
        found = []
        for one in self._told("sits").values():
            for pid in (one["pid"], one["child"]):
                with suppress(psutil.Error):
                    process = psutil.Process(pid)
                    if process.uids().real == os.getuid() and process.status() != psutil.STATUS_ZOMBIE:
                        found += [process, *process.children(recursive=True)]
        return found

    def everyone_ended(self) -> bool:
        """True when all ranks of this host have come and gone."""
        return len(self._told("ended")) == self._job.nproc and not self.processes()


def _launcher_environment(job: Job, folder: Path) -> dict[str, str]:
    known = {name: value for name, value in os.environ.items() if name in LAUNCHER_VARIABLES or name.startswith(FAMILY)}
    path = [str(Path(sys.executable).parent), os.environ.get("PATH", os.defpath)]
    if job.env.get("DISTLAB_SSH"):
        path.insert(0, str(put_ssh(folder, job.env["DISTLAB_SSH"])))
    return {**known, "PATH": os.pathsep.join(path), "PYTHONUNBUFFERED": "1"}


def _start(job: Job, folder: Path, said: Path, ends_with_us: Callable[[], None]) -> subprocess.Popen:
    table = ",".join(f"{name}:{slots}" for name, slots in job.table)
    rank_variable = LAUNCHERS[job.launcher].variables["rank"]
    program = [sys.executable, "-S", str(Path(seat.__file__).resolve()), job.id, table, rank_variable]
    with said.open("w") as file:
        return subprocess.Popen(
            commands.real(job, program),
            env=_launcher_environment(job, folder),
            cwd=folder,
            stdin=subprocess.DEVNULL,
            stdout=file,
            stderr=file,
            preexec_fn=ends_with_us,
        )


def run(
    job: Job,
    folder: Path,
    stopped: Callable[[], bool],
    ends_with_us: Callable[[], None],
    taken: Callable[[Seats], None],
    born: Callable[[Mapping[int, int]], None],
) -> Mapping[int, int]:
    """See a job's ranks of this host to their end; on the first host, start the launcher for all.

    Args:
        stopped: True when the job was stopped meanwhile.
        ends_with_us: run in the launcher before it begins.
        taken: gets the seats as soon as ranks may come.
        born: takes the process ids of ranks that were forked here, by rank, as soon as there are more.

    Returns:
        Exit status of each rank of this host that failed.

    Raises:
        TorchrunError: the launcher failed, and no rank of this host.
        LauncherLost: the launcher was killed.
    """
    seats = Seats(job, folder)
    said = folder / "launcher.txt"
    seats.open()
    taken(seats)
    started, forked = time.monotonic(), {}

    def look() -> None:
        nonlocal forked
        before, forked = forked, seats.tend()
        if forked.keys() != before.keys():
            born(forked)

    try:
        launcher = _start(job, folder, said, ends_with_us) if job.node_rank == 0 else None
        while not stopped():
            look()
            over = launcher is not None and launcher.poll() is not None
            if over or (launcher is None and seats.everyone_ended()):
                break
            time.sleep(pause(time.monotonic() - started))
        until = time.monotonic() + AFTER_SECONDS
        while launcher is not None and seats.processes() and not stopped() and time.monotonic() < until:
            look()
            time.sleep(pause(0))
    finally:
        seats.close()
    if stopped():
        return seats.statuses()
    if launcher is not None and launcher.returncode < 0:
        raise LauncherLost(f"{job.launcher} was killed by {signal.Signals(-launcher.returncode).name}")
    if launcher is not None and launcher.returncode and not seats.statuses():
        raise TorchrunError(_why(job, said.read_text(errors="replace"), launcher.returncode))
    return seats.statuses()


def _why(job: Job, text: str, status: int) -> str:
    """What a launcher says before it gives up, in one sentence."""
    lines = [line.strip(" -*") for line in text.splitlines() if line.strip(" -*")]
    seatless = [line for line in lines if "finds no seat" in line]
    likely = [line for line in lines if any(word in line for word in ("rror", "not ", "refused", "denied", "unable"))]
    said = (seatless or likely or lines or [f"it ended with status {status}"])[0]
    # Some put the rank in front.
    return f"{job.launcher}: {said.partition('<stderr>:')[2] or said}"
