"""Elastic training with Horovod: a rank is killed in the middle of an epoch, and the others go on.

Runs as one process, which starts horovodrun on both hosts: run("horovod/elastic", hosts="node1:1"). One rank of the
second host kills itself; Horovod gives its host up, and the ranks of the first go back to the last commit.

Reports a record `elastic` for each thing that happened to a rank: `what` (started, step, commit, killed, lost,
restored, resized, dropped, ended), `hvd_rank`, `first_rank` (the rank at its start, which names the process),
`hvd_host`, `world_size`, `life` (how often its world was resized), `step` and `seconds` since horovodrun was started;
a step also has `began`, `loss` and `samples` (indices), and `ended` has `weights` (a digest). Times are those of each
host's own clock. One record `horovodrun` has `shown`, `discover`, `ranks`, `killed_rank` and `seconds`.
"""

import argparse
import json
import os
import shlex
import signal
import subprocess
import sys
import time
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

import psutil

from distlab import process, report
from distlab.hosts import Host, find
from distlab.hosts.interface import leading_to
from distlab.hosts.ssh import put_ssh
from distlab.launchers.horovodrun import own_name
from distlab.parent import end_with_parent
from distlab.runs import WORKSPACE

RANK = Path(__file__).with_name("elastic_rank.py")
# Two of a host at most, so that the epoch is long enough to lose a rank in its middle.
SLOTS = 2
# Killed processes are gone in a moment, unless the machine is busy.
END_SECONDS = 5.0
# Names by which Horovod takes two hosts for this machine, and for two.
HERE = ("localhost", "127.0.0.1")
# horovodrun writes its whole environment into command lines, which everybody on the machine can read.
HANDED_ON = ("PATH", "HOME", "USER", "LANG", "LC_ALL", "TMPDIR", "PYTHONPATH")
# These are this process's own.
NOT_HANDED_ON = ("DISTLAB_HOST", "DISTLAB_RECORDS", "DISTLAB_RUN_DIR")
# It finds the first host a moment before the other, as Horovod numbers ranks in the order in which hosts are found.
DISCOVER = """#!/bin/sh
# Horovod asks this every second for the hosts that there are now.
echo {first}
if [ -e found ]; then echo {second}; fi
touch found
"""


def two_hosts() -> dict[str, Host]:
    """The two hosts to train on, by the name that Horovod uses.

    Raises:
        SystemExit: there is only one.
    """
    found = find().hosts
    if len(found) < 2:
        raise SystemExit(f"elastic training needs two hosts, and there is only {found[0].name}: set DISTLAB_HOSTS")
    here, there = found[:2]
    names = HERE if here.kind == "simulated" else (own_name(here.name), there.name)
    return dict(zip(names, (here, there), strict=True))


def slots_of(hosts: dict[str, Host]) -> list[int]:
    """How many ranks each host gets."""
    return [min(host.slots, SLOTS) for host in hosts.values()]


def small_environment() -> dict[str, str]:
    """What ranks need of this process's environment, and nothing that is secret."""
    named = {name for name in os.environ if name in HANDED_ON or name.startswith("DISTLAB_")}
    return {name: os.environ[name] for name in named.difference(NOT_HANDED_ON)} | {"OMP_NUM_THREADS": "1"}


def command(hosts: dict[str, Host], seconds: float, *words: str) -> list[str]:
    """What starts the ranks; `words` are the rank's own.

    Raises:
        SystemExit: there is no horovodrun beside this Python.
    """
    horovodrun = Path(sys.executable).with_name("horovodrun")
    if not horovodrun.exists():
        raise SystemExit(f"no horovodrun beside {sys.executable}: make horovod")
    first, second = hosts.values()
    slots = slots_of(hosts)
    ranks = ("-np", str(sum(slots)), "--min-np", str(min(slots)), "--max-np", str(sum(slots)))
    # One loss is meant to happen; a second one is an error.
    limits = ("--reset-limit", "1", "--start-timeout", str(int(seconds)), "--elastic-timeout", str(int(seconds)))
    interface = first.environment().get("GLOO_SOCKET_IFNAME") or leading_to([second.address])
    meet = ("--network-interfaces", interface) if interface else ()
    found = ("--host-discovery-script", "./discover.sh")
    return [str(horovodrun), "--gloo", *ranks, *limits, *meet, *found, sys.executable, str(RANK), *words]


def shown(words: list[str]) -> str:
    """What a person would type who has the environment activated."""
    own = words.index(sys.executable)
    return shlex.join(["horovodrun", *words[1:own], "python", os.path.relpath(RANK, WORKSPACE)])


def discovery(folder: Path, hosts: dict[str, Host]) -> str:
    """Write the script that tells Horovod which hosts there are; returns its text."""
    first, second = (f"{name}:{slots}" for name, slots in zip(hosts, slots_of(hosts), strict=True))
    text, path = DISCOVER.format(first=first, second=second), folder / "discover.sh"
    path.write_text(text)
    path.chmod(0o755)
    return text


def end(horovodrun: subprocess.Popen) -> None:
    """End horovodrun and all that it started on this host, at once."""
    below = []
    with suppress(psutil.NoSuchProcess):
        below = psutil.Process(horovodrun.pid).children(recursive=True)
    # It first, so that it starts no other in place of one that ends.
    processes: list[subprocess.Popen | psutil.Process] = [horovodrun, *below]
    for started in processes:
        with suppress(psutil.NoSuchProcess):
            started.kill()
    horovodrun.wait()
    psutil.wait_procs(below, END_SECONDS)


def last_words(log: Path) -> str:
    """The last line of what horovodrun said that is no part of a traceback's frames."""
    lines = [line for line in log.read_text(errors="replace").splitlines() if line.strip()]
    # Another of its threads may still be writing a traceback when it ends.
    said = [line for line in lines if not line.startswith((" ", "Traceback (", "Exception in thread"))]
    return said[-1].strip() if said else "it said nothing"


def run_to_its_end(words: list[str], folder: Path, seconds: float) -> None:
    """Run horovodrun in its folder; what it says is kept there in horovodrun.log.

    Raises:
        SystemExit: it failed, or did not end in time and was ended.
    """
    # Killed, it takes its ranks along: those who watch over them see its end of a pipe close.
    with_parent = partial(end_with_parent, signal.SIGKILL, os.getpid())
    log = folder / "horovodrun.log"
    environ = small_environment()
    if environ.get("DISTLAB_SSH"):
        environ["PATH"] = os.pathsep.join([str(put_ssh(folder, environ["DISTLAB_SSH"])), environ["PATH"]])
    with log.open("w") as said:
        pipes: dict[str, Any] = {"stdin": subprocess.DEVNULL, "stdout": said, "stderr": said}
        horovodrun = subprocess.Popen(words, cwd=folder, env=environ, preexec_fn=with_parent, **pipes)
        try:
            horovodrun.wait(seconds)
        except subprocess.TimeoutExpired:
            raise SystemExit(f"horovodrun did not end within {seconds:g} s: {last_words(log)}") from None
        finally:
            end(horovodrun)
    if horovodrun.returncode:
        raise SystemExit(f"horovodrun ended with status {horovodrun.returncode}: {last_words(log)}")


def told(folder: Path, hosts: dict[str, Host]) -> list[dict]:
    """What all ranks wrote, in the order of time, and who was dropped because a rank of its host was killed."""
    lives = []
    for path in sorted(folder.glob("*.jsonl")):
        *whole, _torn = path.read_text().split("\n")
        lives.append([json.loads(line) for line in whole])
    records = [record for life in lives for record in life]
    resized = min((record["seconds"] for record in records if record["what"] == "resized"), default=None)
    for life in lives:
        if resized is not None and life[-1]["what"] not in ("killed", "ended"):
            # It cannot say so itself: it is known when the others go on without it.
            records.append(life[-1] | {"what": "dropped", "seconds": max(resized, life[-1]["seconds"])})
    for record in records:
        record["hvd_host"] = hosts[record["hvd_host"]].name
    return sorted(records, key=lambda record: record["seconds"])


def main() -> None:
    """Run the experiment on this rank. Reports `elastic` and `horovodrun`."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kill-rank", type=int, help="the rank that is killed; by default the second host's first")
    parser.add_argument("--kill-step", type=int, default=11, help="the step in the middle of which it is killed")
    parser.add_argument("--commit-every", type=int, default=4, help="steps")
    parser.add_argument("--pause", type=float, default=0.1, help="seconds by which each step is made longer")
    parser.add_argument("--timeout", type=float, default=120, help="seconds for everything")
    args = parser.parse_args()
    with process.alone() as me:
        hosts = two_hosts()
        first, second = slots_of(hosts)
        killed = first if args.kill_rank is None else args.kill_rank
        if not 0 <= killed < first + second:
            raise SystemExit(f"there is no rank {killed} to kill: ranks count from 0 to {first + second - 1}")
        folder = Path(process.run_folder()).resolve() / "elastic"
        folder.mkdir()
        discover, start = discovery(folder, hosts), time.time()
        given = {"folder": folder, "start": start, "deadline": int(args.timeout) + 1, "kill-rank": killed}
        given |= {"kill-step": args.kill_step, "commit-every": args.commit_every, "pause": args.pause}
        words = command(hosts, args.timeout, *(f"--{name}={value}" for name, value in given.items()))
        run_to_its_end(words, folder, args.timeout)
        job = {"discover": discover, "ranks": first + second, "killed_rank": killed, "seconds": time.time() - start}
        for record in told(folder, hosts):
            report.log(me, "elastic", **record)
        report.log(me, "horovodrun", shown=shown(words), **job)


if __name__ == "__main__":
    main()
