"""A host's agent: starts ranks when told, and ends with all of them when its connection closes.

It stays up for the life of the notebook, so that ranks start warm. On this machine it is told over a
pipe, on another over ssh. When that closes, for whatever reason, it kills everything it started.
"""

import json
import multiprocessing.util
import os
import queue
import shutil
import signal
import sys
import tempfile
import threading
import time
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import psutil

from distlab import ports
from distlab.agent import commands, launched, placeholder, torchrun
from distlab.agent.job import Job
from distlab.agent.launched import LauncherLost, Placeholders
from distlab.agent.pulse import Pulse
from distlab.agent.tail import Tail
from distlab.agent.torchrun import LauncherError
from distlab.agent.wire import receive, send
from distlab.hosts.interface import leading_to, socket_variables
from distlab.launchers import LAUNCHERS
from distlab.parent import adopt_orphans
from distlab.waiting import wait_until

STOP_SECONDS = 2.0
STACK_SECONDS = 1.0
SWEEP_SECONDS = 1.0

SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT)


def _start_nothing_more(*_: Any, **__: Any) -> int:
    raise OSError("this agent ends")


class Agent:
    """Serves one connection."""

    def __init__(self) -> None:
        # Only messages may reach the other side, so whatever prints to stdout goes to stderr.
        self._out = os.fdopen(os.dup(1), "w")
        os.dup2(2, 1)
        self._tasks: queue.Queue[dict[str, Any]] = queue.Queue()
        self._folder = Path(tempfile.mkdtemp(prefix="distlab-"))
        # multiprocessing makes a folder for its sockets, and this agent ends too abruptly for it to be removed there.
        tempfile.tempdir = str(self._folder)
        self._stores: dict[str, object] = {}
        self._job: Job | None = None
        self._pulse: Pulse | None = None
        self._placeholders: Placeholders | None = None
        self._stopped: set[str] = set()
        self._stacks: dict[int, str] = {}
        self._own: set[int] = set()
        # Reentrant, since a signal's handler runs in the thread that may hold it already.
        self._dying = threading.RLock()
        # When torchrun is killed, its ranks must stay where we see them.
        adopt_orphans()
        self._mind_signals()

    def _mind_signals(self) -> None:
        # torchrun's elastic agent sets handlers of its own while ranks run, and does not restore ours.
        for number in SIGNALS:
            signal.signal(number, lambda *_: self._die())

    def serve(self) -> None:
        """Work until the connection closes."""
        threading.Thread(target=self._listen, daemon=True).start()
        while True:
            task = self._tasks.get()
            try:
                getattr(self, "_do_" + task.pop("do"))(**task)
            except Exception as error:
                self._say(event="broken", job=task.get("job", {}), reason=f"{type(error).__name__}: {error}")

    # -- the thread that listens ------------------------------------------------------------

    def _listen(self) -> None:
        try:
            for message in receive(sys.stdin):
                if message["do"] == "stop":
                    self._stop(message["id"])
                elif message["do"] == "stacks":
                    self._gather_stacks(message["id"])
                elif message["do"] == "release":
                    self._stores.pop(message["id"], None)
                else:
                    self._tasks.put(message)
        finally:
            # Also after an error here: an agent that no longer reads messages could never be stopped.
            self._die()

    def _say(self, **message: object) -> None:
        try:
            send(self._out, **message)
        except OSError:
            # The connection is closed, so nobody needs this agent.
            self._die()

    def _die(self) -> None:
        """End now, with everything this agent started; the first thread to come here sees to it."""
        with self._dying:
            try:
                # In the other thread multiprocessing would start its helpers again as they are killed.
                multiprocessing.util.spawnv_passfds = _start_nothing_more
                placeholder.close_doors(str(self._folder))
                self._sweep(keep=set())
                shutil.rmtree(self._folder, ignore_errors=True)
            finally:
                os._exit(0)

    def _kill(self, keep: set[int]) -> list[psutil.Process]:
        """Kill all descendants except `keep`; returns those that were still there."""
        # Placeholders that another host's launcher started over ssh are no descendants of this agent.
        started_elsewhere = self._placeholders.processes() if self._placeholders else []
        everyone = [*psutil.Process().children(recursive=True), *started_elsewhere]
        strangers = [process for process in everyone if process.pid not in keep]
        for process in strangers:
            with suppress(psutil.Error):
                process.kill()
        return strangers

    def _sweep(self, keep: set[int]) -> None:
        """Kill all descendants but `keep`, again while orphans turn up, and collect their exit statuses."""

        def nobody_is_left() -> bool:
            strangers = self._kill(keep)
            for process in strangers:
                with suppress(OSError):
                    os.waitpid(process.pid, os.WNOHANG)
            return not strangers

        wait_until(nobody_is_left, SWEEP_SECONDS, every=0.01)

    def _records(self, job: Job) -> Path:
        return self._folder / job.id / "records"

    def _gather_stacks(self, id: str) -> None:
        job, pulse = self._job, self._pulse
        if job and pulse and job.id == id:
            # Ranks that end after this may only end because others were stopped, maybe on another host.
            pulse.freeze()
            self._ask_for_stacks(job, pulse)
        self._say(event="stacks", id=id)

    def _ask_for_stacks(self, job: Job, pulse: Pulse) -> None:
        pids = pulse.running()
        for pid in pids.values():
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGUSR1)
        files = {rank: self._records(job) / f"rank{rank}.stack.txt" for rank in pids}
        wait_until(lambda: all(file.stat().st_size for file in files.values()), STACK_SECONDS)
        # The last rank to answer may still be writing.
        time.sleep(0.1)
        self._stacks = {rank: file.read_text(errors="replace") for rank, file in files.items()}

    def _stop(self, id: str) -> None:
        self._stopped.add(id)
        job, pulse = self._job, self._pulse
        if job is None or pulse is None or job.id != id:
            # Not started yet, or over. This thread answers, since the main one may be busy with imports for seconds.
            self._stores.pop(id, None)
            self._send_end(id, stopped=True)
            return
        pulse.freeze()

        def is_over() -> bool:
            self._kill(keep=self._own)
            return self._job is not job

        if not wait_until(is_over, STOP_SECONDS):
            # The main thread is stuck in torch, waiting for a host that never came; only the agent's end ends that.
            self._report(job, pulse, {}, "did not stop in time", dying=True)
            self._die()

    # -- the main thread: only there may torchrun's elastic agent set its signal handlers -------

    def _do_hello(self, env: dict[str, str]) -> None:
        os.environ.update(env)
        self._say(event="hello", pid=os.getpid(), folder=str(self._folder))

    def _do_warm(self) -> None:
        # The server that forks the ranks may have been killed since; then this starts it again.
        alive = {child.pid for child in psutil.Process().children() if child.status() != psutil.STATUS_ZOMBIE}
        if not self._own or self._own - alive:
            torchrun.warm()
            self._own = {process.pid for process in psutil.Process().children(recursive=True)}
        self._say(event="warm")

    def _do_port(self, id: str, address: str, wanted: int | None, cold: bool) -> None:
        server, taken = ports.listen(address, wanted)
        port = server.getsockname()[1]
        if cold:
            # torchrun opens the port itself. Another process may be first, and then the notebook tries again.
            server.close()
        else:
            self._stores[id] = torchrun.open_store(server)
        if id in self._stopped:
            self._stores.pop(id, None)
        self._say(event="port", id=id, port=port, taken=taken)

    def _do_start(self, job: dict[str, Any]) -> None:
        self._start(Job(**job))

    def _start(self, job: Job) -> None:
        lost = False
        folder = self._folder / job.id
        records, logs = self._records(job), folder / "logs"
        records.mkdir(parents=True)
        logs.mkdir()
        job.env |= {"DISTLAB_RECORDS": str(records), "DISTLAB_RUN_DIR": job.run_dir}
        if job.peers is not None:
            job.env = {**socket_variables(job.peers, os.environ), **job.env}
            interface = job.env.get("GLOO_SOCKET_IFNAME") or leading_to(job.peers)
            if commands.for_all(job.launcher) and interface:
                # Launchers give all hosts the name that the interface has on the first.
                names = (launcher.interface for launcher in LAUNCHERS.values())
                job.env = {**{name: interface for name in names if name}, **job.env}
        tail = Tail(logs, job.nproc, lambda local, stream, text: self._line(job, local, stream, text))
        pulse = Pulse(records, job.nproc, lambda: self._say(event="failing", id=job.id))
        self._stacks, self._pulse, self._job = {}, pulse, job
        tail.start()
        pulse.start()
        reason = None
        statuses: Mapping[int, int] = {}
        try:
            if job.id not in self._stopped:
                if commands.for_all(job.launcher):
                    self._placeholders = Placeholders(job, folder)
                    statuses = launched.run(self._placeholders, lambda: job.id in self._stopped, pulse.born)
                elif job.cold:
                    statuses = torchrun.run_cold(job, logs)
                else:
                    statuses = torchrun.run_warm(job, logs, pulse.born)
        except LauncherError as error:
            reason, lost = str(error), isinstance(error, LauncherLost)
        except Exception as error:
            reason = f"{type(error).__name__}: {error}"
        finally:
            pulse.freeze()
            self._mind_signals()
            self._sweep(keep=self._own)
            try:
                tail.stop()
            except Exception as error:
                reason = reason or f"output was lost: {type(error).__name__}: {error}"
        self._report(job, pulse, statuses, reason, lost=lost)
        self._job = self._placeholders = None
        shutil.rmtree(folder, ignore_errors=True)

    def _line(self, job: Job, local_rank: int, stream: str, text: str) -> None:
        self._say(event="line", id=job.id, rank=job.first_rank + local_rank, stream=stream, text=text)

    def _report(
        self,
        job: Job,
        pulse: Pulse,
        statuses: Mapping[int, int],
        reason: str | None,
        dying: bool = False,
        lost: bool = False,
    ) -> None:
        stopped = job.id in self._stopped
        ranks = []
        for local_rank in range(job.nproc):
            rank = job.first_rank + local_rank
            ranks.append(
                {
                    "rank": rank,
                    "status": pulse.status(rank, statuses),
                    "ending": pulse.record(rank),
                    "vanished": pulse.vanished(rank, statuses),
                }
            )
        self._send_end(
            job.id,
            ok=not statuses and reason is None and not stopped,
            stopped=stopped,
            dying=dying,
            lost=lost,
            reason=reason,
            ranks=ranks,
            metrics=self._metrics(job),
            stacks={str(rank): text for rank, text in self._stacks.items()},
        )

    def _metrics(self, job: Job) -> list[dict[str, Any]]:
        found = []
        for rank in range(job.first_rank, job.first_rank + job.nproc):
            file = Path(job.run_dir) / "metrics" / f"rank{rank}.jsonl"
            for line in file.read_text().splitlines() if file.exists() else []:
                # A rank that was killed may leave half a line.
                with suppress(ValueError):
                    found.append(json.loads(line))
        return found

    def _send_end(
        self,
        id: str,
        stopped: bool,
        ok: bool = False,
        dying: bool = False,
        lost: bool = False,
        reason: str | None = None,
        ranks: list[dict[str, Any]] | None = None,
        metrics: list[dict[str, Any]] | None = None,
        stacks: dict[str, str] | None = None,
    ) -> None:
        self._say(
            event="ended",
            id=id,
            ok=ok,
            stopped=stopped,
            dying=dying,
            lost=lost,
            reason=reason,
            ranks=ranks or [],
            metrics=metrics or [],
            stacks=stacks or {},
        )
