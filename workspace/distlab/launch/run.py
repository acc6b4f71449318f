"""Starts one script on all hosts and sees it to its end."""

import time
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import TextIO

from distlab import horovod_wheel
from distlab.agent import commands
from distlab.agent.job import Job
from distlab.hosts import Finding, Host, HostsError, find, parse
from distlab.launch.connection import Connection, HostError
from distlab.launch.jobs import JOIN_SECONDS, Rendezvous, make_jobs, to_type
from distlab.launch.outcome import conclude, say_failure
from distlab.launch.result import RunFailed, RunResult
from distlab.launch.scripts import ScriptError, find_script, to_arguments
from distlab.launch.session import Session, default_session
from distlab.launch.voice import Voice
from distlab.launch.watch import Watch
from distlab.runs import make_folder, new_run_name, runs_root

LAUNCHERS = ("torchrun", *commands.LAUNCHERS)
PORT_TRIES = 3
# A torchrun that asks for the rendezvous before the first host's has opened it is refused, and
# asks again only a second later. So the first starts a moment before the others.
HEAD_START = 0.1


def _resolve_hosts(hosts: str | Finding | Sequence[Host] | None) -> list[Host]:
    if hosts is None:
        return find().hosts
    if isinstance(hosts, str):
        return parse(hosts)
    found = list(hosts.hosts if isinstance(hosts, Finding) else hosts)
    if not found:
        raise HostsError("no host to run on")
    return found


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
    folder = make_folder(runs_root() / f"{new_run_name(path)}-{uuid.uuid4().hex[:4]}").resolve()
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
                wanted = None if attempt else master_port
                meeting = _find_rendezvous(session, connections[0], cold, wanted, until, voice)
                jobs = make_jobs(where, path, words, folder, meeting, launcher, cold, threads, env or {}, until)
                command = to_type(jobs)
                watch = Watch(jobs, voice, session)
                late = None
                try:
                    _start(connections, jobs, launcher, cold)
                    # Ranks take their time to start; what shows a result need not take its own at the end.
                    import_module("distlab.launch.table")
                    watch.follow(until)
                    if watch.waiting and not watch.first_failure:
                        late = timeout
                finally:
                    try:
                        if watch.waiting:
                            watch.stop(connections, stacks=late is not None)
                    finally:
                        connections[0].send(do="release", id=meeting.id)
                # Only torchrun itself opens its port late enough for another process to be first.
                if not (cold and _port_clash(watch)):
                    break
                voice.tell(f"port {meeting.port} was taken in the meantime; trying another")
        result = conclude(watch, path, launcher, started, folder, command, late)
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
        raise RunFailed(say_failure(result), result)
    return result


def _require_launcher(launcher: str) -> None:
    if launcher != "mpirun" and find_spec("horovod") is None:
        there = horovod_wheel.current()
        raise ScriptError(f"{launcher} is part of Horovod, which is {there.text}: {there.remedy}")


def _start(connections: list[Connection], jobs: dict[str, Job], launcher: str, cold: bool) -> None:
    for index, one in enumerate(connections):
        if launcher == "torchrun" and cold and index == 1:
            time.sleep(HEAD_START)
        one.send(do="start", job=asdict(jobs[one.host.name]))


def _find_rendezvous(
    session: Session, master: Connection, cold: bool, wanted: int | None, until: float, voice: Voice
) -> Rendezvous:
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
                return Rendezvous(id, address, event["port"])
            if event["event"] in {"broken", "gone"}:
                said = event.get("reason") or master.last_words()
                raise HostError(f"{master.host.name} cannot serve the rendezvous: {said}")
        raise HostError(f"{master.host.name} was not ready in time: give more time, or is the machine overloaded?")
    except BaseException:
        # Nobody will use the port any more.
        master.send(do="stop", id=id)
        raise


def _port_clash(watch: Watch) -> bool:
    return any("EADDRINUSE" in (one.get("reason") or "") for one in watch.ended.values())
