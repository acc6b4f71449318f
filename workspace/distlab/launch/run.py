"""Starts one script on all hosts and sees it to its end."""

import os
import signal
import time
import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import TextIO

from distlab import horovod_wheel
from distlab.agent import commands
from distlab.agent.job import Job, typed
from distlab.hosts import Finding, Host, HostsError, find, parse
from distlab.launch.connection import Connection, HostError
from distlab.launch.result import RankEnd, RunFailed, RunResult
from distlab.launch.scripts import ScriptError, find_script, to_arguments
from distlab.launch.session import Session, default_session
from distlab.launch.verdict import Ending, blame, describe_late, exit_status, trim_stack
from distlab.launch.voice import Voice
from distlab.runs import make_folder, new_run_name, runs_root

LAUNCHERS = ("torchrun", *commands.LAUNCHERS)
# Settings of these families reach the ranks as they are at the moment of the call.
FORWARDED = ("DISTLAB_", "GLOO_", "HOROVOD_", "NCCL_", "TORCH_", "TQDM_", "PYTHONFAULTHANDLER")
JOIN_SECONDS = 60.0
PORT_TRIES = 3
# A torchrun that asks for the rendezvous before the first host's has opened it is refused, and
# asks again only a second later. So the first starts a moment before the others.
HEAD_START = 0.1
# After the first failure the peers get this long to tell what they saw.
VERDICT_SECONDS = 1.5
# Agents gather stacks for one second, and kill for two before they give up.
STACK_SECONDS, STOP_SECONDS = 1.5, 2.5


def _resolve_hosts(hosts: str | Finding | Sequence[Host] | None) -> list[Host]:
    if hosts is None:
        return find().hosts
    if isinstance(hosts, str):
        return parse(hosts)
    found = list(hosts.hosts if isinstance(hosts, Finding) else hosts)
    if not found:
        raise HostsError("no host to run on")
    return found


class _Watch:
    """One job under way: what its hosts have said so far."""

    def __init__(self, jobs: dict[str, Job], voice: Voice) -> None:
        self.jobs, self.voice = jobs, voice
        self.ended: dict[str, dict] = {}
        self.gone: dict[str, dict] = {}
        self.first_failure: float | None = None
        self.stacks_told: set[str] = set()

    def hear(self, host: str, message: dict) -> None:
        job = self.jobs.get(host)
        if job is None or message.get("id", job.id) != job.id:
            return
        event = message["event"]
        if host in self.ended:
            return
        if event == "line":
            self.voice.hear(host, message["rank"], message["stream"], message["text"])
        elif event == "ended":
            self.ended[host] = message
            if not message["ok"]:
                self._fails()
        elif event == "broken":
            self.ended[host] = {"ok": False, "stopped": False, "reason": message["reason"], "ranks": [], "metrics": []}
            self._fails()
        elif event == "gone":
            self.gone[host] = message
            self._fails()
        elif event == "failing":
            self._fails()
        elif event == "stacks":
            self.stacks_told.add(host)

    def _fails(self) -> None:
        self.first_failure = self.first_failure or time.monotonic()

    @property
    def waiting(self) -> list[str]:
        """Hosts that have not ended."""
        return [host for host in self.jobs if host not in self.ended and host not in self.gone]


def _follow(watch: _Watch, session: Session, until: float) -> None:
    """Take messages until all hosts have ended, one has failed a moment ago, or time is up."""
    for message in session.messages(until):
        if message:
            watch.hear(*message)
        failed = watch.first_failure
        if not watch.waiting or (failed and time.monotonic() > failed + VERDICT_SECONDS):
            return


def _hear(watch: _Watch, session: Session, seconds: float, enough: Callable[[], bool]) -> None:
    for message in session.messages(time.monotonic() + seconds):
        if message:
            watch.hear(*message)
        if enough():
            return


def _stop(watch: _Watch, session: Session, connections: list[Connection], stacks: bool) -> None:
    """Stop the job on every host; a host that does not answer is hung up on."""
    waiting = [one for one in connections if one.host.name in watch.waiting]
    if stacks:
        # From all hosts before any is stopped, or ranks elsewhere fail for want of their peers.
        for one in waiting:
            one.send(do="stacks", id=watch.jobs[one.host.name].id)
        _hear(watch, session, STACK_SECONDS, lambda: watch.stacks_told.issuperset(watch.waiting))
    for one in waiting:
        one.send(do="stop", id=watch.jobs[one.host.name].id)
    _hear(watch, session, STOP_SECONDS, lambda: not watch.waiting)
    for host in [*watch.waiting, *(host for host, one in watch.ended.items() if one.get("dying"))]:
        session.drop(host)


def _endings(watch: _Watch) -> list[Ending]:
    ends = []
    for host, job in watch.jobs.items():
        told = {one["rank"]: one for one in watch.ended.get(host, {}).get("ranks", [])}
        for rank in range(job.first_rank, job.first_rank + job.nproc):
            one = told.get(rank, {"status": None, "ending": None, "vanished": False})
            ends.append(Ending(rank, host, one["status"], one["ending"], watch.voice.held(rank), one["vanished"]))
    return ends


def _say_lost(host: str, message: dict) -> str:
    said = f" ({message['said']})" if message["status"] > 0 and message["said"] else ""
    return f"{host} was lost: its agent ended with status {message['status']}{said}. Is the host still up?"


def _error(watch: _Watch, ends: list[Ending], late: float | None) -> str | None:
    """The one message that explains a failure, or None."""
    failed = any(not one["ok"] for one in watch.ended.values())
    if late is not None:
        return describe_late(ends, late)
    for host, one in watch.ended.items():
        # Its ranks ended because it did.
        if one.get("lost"):
            return f"{host}: {one['reason']}"
    message = blame(ends, {host: _say_lost(host, one) for host, one in watch.gone.items()})
    if message and (failed or watch.gone):
        return message
    for host, one in watch.ended.items():
        if one.get("reason"):
            return f"{host}: {one['reason']}"
    return "a rank failed without a word: see the logs" if failed or watch.waiting else None


def _how(end: Ending, error: str | None) -> str:
    if end.record:
        return end.record["how"]
    # A launcher terminates the others in the moment in which it sees the first failure.
    if end.status is None or (end.status == -signal.SIGTERM and not (error or "").startswith(f"{end} ")):
        return "stopped"
    return "killed" if end.status < 0 else "left"


def _result(
    watch: _Watch, script: Path, launcher: str, started: float, folder: Path, command: dict, late: float | None
) -> RunResult:
    ends = _endings(watch)
    ok = not watch.waiting and not watch.gone and all(one["ok"] for one in watch.ended.values())
    error = None if ok else _error(watch, ends, late)
    ranks = []
    for end in ends:
        job = watch.jobs[end.host]
        how = _how(end, error)
        status = int(how == "stopped") or exit_status(end) or int(how == "raised")
        log = str(watch.voice.log_path(end.rank))
        ranks.append(RankEnd(end.rank, end.host, end.rank - job.first_rank, how, status, log))
    said = watch.ended.values()
    return RunResult(
        script=script.stem,
        launcher=launcher,
        ok=ok,
        hosts=list(watch.jobs),
        ranks=ranks,
        seconds=time.monotonic() - started,
        folder=folder,
        command=command,
        error=error,
        metrics=sorted((record for one in said for record in one["metrics"]), key=lambda record: record["rank"]),
        stacks={int(rank): trim_stack(text) for one in said for rank, text in one.get("stacks", {}).items()},
        output=watch.voice.lines,
    )


def run(
    script: str | Path,
    *arguments: str,
    hosts: str | Finding | Sequence[Host] | None = None,
    launcher: str = "torchrun",
    timeout: float = 600.0,
    cold: bool = False,
    threads: int | None = None,
    master_port: int | None = None,
    env: Mapping[str, str] | None = None,
    quiet: bool = False,
    session: Session | None = None,
    out: TextIO | None = None,
    **options: object,
) -> RunResult:
    """Start a script on the hosts and wait for its end.

    Args:
        script: a lesson's script by name (`"ddp"`) or a path to any.
        arguments: words for the script's command line.
        hosts: `"node1:2,node2:2"`, or None for the hosts found here.
        timeout: seconds after which all ranks are stopped and their stacks shown.
        launcher: torchrun, mpirun, horovodrun (over gloo) or horovodrun-mpi.
        cold: start real torchrun commands in place of warm ranks; under another launcher, ranks that import anew.
        threads: threads per rank, or None for an equal share of each host's cores.
        master_port: a port for the rendezvous; another one is taken if it is in use.
        env: more variables for the ranks.
        quiet: do not print what ranks print; logs are kept anyway.
        options: options of the script: `epochs=1` is `--epochs 1`.

    Raises:
        RunFailed: a rank failed, a host was lost, or time was up; says which and why, once.
        ScriptError, HostsError, HostError, OSError: nothing was started; says why.
    """
    started = time.monotonic()
    if launcher not in LAUNCHERS:
        raise ScriptError(f"launcher {launcher!r} is unknown: use {' or '.join(LAUNCHERS)}")
    path = find_script(script)
    where = _resolve_hosts(hosts)
    if launcher in commands.LAUNCHERS:
        _require_launcher(launcher)
    folder = make_folder(runs_root() / f"{new_run_name(path.name)}-{uuid.uuid4().hex[:4]}").resolve()
    session = session or default_session()
    voice = Voice(folder, quiet, out)
    words = [*arguments, *to_arguments(options)]
    until = started + timeout
    try:
        with session.claimed():
            for attempt in range(PORT_TRIES):
                connections = session.connect(where, min(JOIN_SECONDS, timeout), voice.tell)
                if not cold:
                    for one in connections:
                        one.send(do="warm")
                port = _find_port(session, connections[0], cold, None if attempt else master_port, until, voice)
                jobs = _jobs(where, path, words, folder, port, launcher, cold, threads, env or {}, until)
                watch = _Watch(jobs, voice)
                command = _commands(jobs)
                late = None
                try:
                    _start(connections, jobs, launcher, cold)
                    # Ranks take their time to start; what shows a result need not take its own at the end.
                    import_module("distlab.launch.table")
                    _follow(watch, session, until)
                    if watch.waiting and not watch.first_failure:
                        late = timeout
                finally:
                    try:
                        if watch.waiting:
                            _stop(watch, session, connections, stacks=late is not None)
                    finally:
                        connections[0].send(do="release", id=port[0].split()[0])
                # Only torchrun itself opens its port late enough for another process to be first.
                if not (cold and _port_clash(watch)):
                    break
                voice.tell(f"port {port[1]} was taken in the meantime; trying another")
        result = _result(watch, path, launcher, started, folder, command, late)
    except BaseException:
        voice.close(release=False)
        raise
    voice.close(release=result.ok)
    try:
        (folder / "run.json").write_text(result.to_json() + "\n")
    except OSError as error:
        # A full disk must not hide how the run itself ended.
        voice.tell(f"cannot keep {folder / 'run.json'}: {error.strerror}")
    if not result.ok:
        raise RunFailed(_say_failure(result), result)
    return result


def _require_launcher(launcher: str) -> None:
    if launcher != "mpirun" and find_spec("horovod") is None:
        there = horovod_wheel.current()
        raise ScriptError(f"{launcher} is part of Horovod, which is {there.text}: {there.remedy}")


def _commands(jobs: dict[str, Job]) -> dict[str, str]:
    """What a person would type, by host: on each one for torchrun, else on the first for all."""
    first = next(iter(jobs))
    if jobs[first].launcher in commands.LAUNCHERS:
        return {first: commands.typed_once(jobs[first])}
    return {host: typed(job, host) for host, job in jobs.items()}


def _start(connections: list[Connection], jobs: dict[str, Job], launcher: str, cold: bool) -> None:
    # A launcher for all hosts finds their seats open; real torchruns find the first one's port.
    for index, one in enumerate(reversed(connections) if launcher in commands.LAUNCHERS else connections):
        if launcher == "torchrun" and cold and index == 1:
            time.sleep(HEAD_START)
        one.send(do="start", job=asdict(jobs[one.host.name]))


def _find_port(
    session: Session, master: Connection, cold: bool, wanted: int | None, until: float, voice: Voice
) -> tuple[str, int]:
    id = uuid.uuid4().hex[:8]
    # A name is what a person would type; simulated hosts have none that resolves.
    simulated = master.host.kind == "simulated"
    address = "127.0.0.1" if simulated else master.host.name
    # A host's own name may mean 127.0.1.1 to itself, where no other host finds it.
    listen = address if simulated and not cold else "0.0.0.0"
    master.send(do="port", id=id, address=listen, wanted=wanted, cold=cold)
    try:
        for message in session.messages(until):
            if not message or message[0] != master.host.name:
                continue
            event = message[1]
            if event["event"] == "port" and event["id"] == id:
                if event["taken"]:
                    voice.tell(f"port {wanted} is taken on {master.host.name}; using {event['port']}")
                return f"{id} {address}", event["port"]
            if event["event"] in {"broken", "gone"}:
                said = event.get("reason") or master.last_words()
                raise HostError(f"{master.host.name} cannot serve the rendezvous: {said}")
        raise HostError(f"{master.host.name} was not ready in time: give more time, or is the machine overloaded?")
    except BaseException:
        # Nobody will use the port any more.
        master.send(do="stop", id=id)
        raise


def _jobs(
    hosts: list[Host],
    script: Path,
    words: list[str],
    folder: Path,
    port: tuple[str, int],
    launcher: str,
    cold: bool,
    threads: int | None,
    env: Mapping[str, str],
    until: float,
) -> dict[str, Job]:
    id, address = port[0].split()
    forwarded = {name: value for name, value in os.environ.items() if name.startswith(FORWARDED)}
    jobs, first = {}, 0
    for index, host in enumerate(hosts):
        variables = {
            "OMP_NUM_THREADS": str(threads or host.threads(host.slots)),
            **forwarded,
            **host.environment(),
            **{name: str(value) for name, value in env.items()},
        }
        if launcher in commands.LAUNCHERS:
            # torchrun says this itself.
            variables |= {"MASTER_ADDR": address, "MASTER_PORT": str(port[1])}
            if not cold:
                variables["TORCHELASTIC_USE_AGENT_STORE"] = "True"
        jobs[host.name] = Job(
            id=id,
            node_rank=index,
            nnodes=len(hosts),
            nproc=host.slots,
            first_rank=first,
            master_addr=address,
            master_port=port[1],
            script=str(script),
            args=words,
            cwd=os.getcwd(),
            run_dir=str(folder),
            env=variables,
            cold=cold,
            launcher=launcher,
            table=[(one.name, one.slots) for one in hosts],
            join_seconds=max(1.0, min(JOIN_SECONDS, until - time.monotonic())),
            peers=None if host.kind == "simulated" else [one.name for one in hosts if one is not host],
        )
        first += host.slots
    return jobs


def _port_clash(watch: _Watch) -> bool:
    return any("EADDRINUSE" in (one.get("reason") or "") for one in watch.ended.values())


def _say_failure(result: RunResult) -> str:
    parts = [result.error or "failed"]
    for rank, stack in sorted(result.stacks.items()):
        host = next(end.host for end in result.ranks if end.rank == rank)
        parts.append(f"--- rank {rank} on {host} stood here:\n{stack}")
    parts.append(f"logs: {result.folder / 'logs'}")
    return "\n".join(parts)
