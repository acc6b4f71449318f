"""Starts one script on all hosts and sees it to its end."""

import time
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from importlib import import_module
from pathlib import Path
from typing import TextIO

from distlab.agent.job import Job
from distlab.hosts import Host, HostList, HostsError, find, parse
from distlab.launch.attempt import Attempt
from distlab.launch.connection import Connection, HostError
from distlab.launch.jobs import JOIN_SECONDS, Rendezvous, make_jobs, to_type
from distlab.launch.outcome import conclude, say_failure
from distlab.launch.output import RankOutput
from distlab.launch.result import RunFailed, RunResult
from distlab.launch.scripts import ScriptError, find_script, to_arguments
from distlab.launch.session import Session, default_session
from distlab.launchers import LAUNCHERS, RUNS_BY
from distlab.runs import make_folder, new_run_name, runs_root
from distlab.whole import write_whole

PORT_TRIES = 3
# The first host starts so much earlier: a torchrun that finds no rendezvous yet asks again only after a second.
HEAD_START = 0.1


def _resolve_hosts(hosts: str | HostList | Sequence[Host] | None) -> list[Host]:
    if hosts is None:
        return find().hosts
    if isinstance(hosts, str):
        return parse(hosts)
    found = list(hosts.hosts if isinstance(hosts, HostList) else hosts)
    if not found:
        raise HostsError("no host to run on")
    return found


def run(
    script: str | Path,
    *arguments: str,
    hosts: str | HostList | Sequence[Host] | None = None,
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
        launcher: one of `launchers.RUNS_BY`.
        cold: start real torchrun commands in place of warm ranks; under another launcher, ranks that import anew.
        threads: threads per rank; None for OMP_NUM_THREADS, and where that is unset for an equal share of the cores.
        master_port: a port for the rendezvous; another one is taken if it is in use.
        env: more variables for the ranks.
        quiet: do not print what ranks print; logs are kept anyway.
        options: options of the script: `epochs=1` is `--epochs 1`.

    Raises:
        RunFailed: a rank failed, a host was lost, or time was up; says which and why, once.
        ScriptError, HostsError, HostError, OSError: nothing was started; says why.
    """
    started = time.monotonic()
    if launcher not in RUNS_BY:
        raise ScriptError(f"launcher {launcher!r} is unknown: use {' or '.join(RUNS_BY)}")
    path = find_script(script)
    where = _resolve_hosts(hosts)
    if lacking := LAUNCHERS[launcher].lacking():
        raise ScriptError(f"{launcher} is {lacking}")
    folder = make_folder(runs_root() / f"{new_run_name(path)}-{uuid.uuid4().hex[:4]}").resolve()
    session = session or default_session()
    output = RankOutput(folder, quiet, out)
    words = [*arguments, *to_arguments(options)]
    until = started + timeout
    try:
        with session.claimed():
            for tries in range(PORT_TRIES):
                connections = session.connect(where, min(JOIN_SECONDS, timeout), output.tell)
                if not cold:
                    for connection in connections:
                        connection.send(do="warm")
                wanted = None if tries else master_port
                meeting = _find_rendezvous(session, connections[0], cold, wanted, until, output)
                jobs = make_jobs(where, path, words, folder, meeting, launcher, cold, threads, env or {}, until)
                command = to_type(jobs)
                attempt = Attempt(jobs, output, session)
                late = None
                try:
                    _start(connections, jobs, launcher, cold)
                    # Imported while the ranks start anyway, so that the result shows at once.
                    import_module("distlab.launch.table")
                    attempt.follow(until)
                    if attempt.waiting and not attempt.first_failure:
                        late = timeout
                finally:
                    try:
                        if attempt.waiting:
                            attempt.stop(connections, stacks=late is not None)
                    finally:
                        connections[0].send(do="release", id=meeting.id)
                # Only a cold torchrun opens its port itself, a moment after it was found free.
                if not (cold and _port_clash(attempt)):
                    break
                output.tell(f"port {meeting.port} was taken in the meantime; trying another")
        result = conclude(attempt, path, launcher, started, folder, command, late)
    except BaseException:
        output.close(release=False)
        raise
    output.close(release=result.ok)
    try:
        write_whole(folder / "run.json", result.to_json() + "\n")
    except OSError as error:
        # A full disk must not hide how the run ended.
        output.tell(f"cannot keep {folder / 'run.json'}: {error.strerror}")
    if not result.ok:
        raise RunFailed(say_failure(result), result)
    return result


def _start(connections: list[Connection], jobs: dict[str, Job], launcher: str, cold: bool) -> None:
    for index, connection in enumerate(connections):
        if launcher == "torchrun" and cold and index == 1:
            time.sleep(HEAD_START)
        connection.send(do="start", job=asdict(jobs[connection.host.name]))


def _find_rendezvous(
    session: Session, master: Connection, cold: bool, wanted: int | None, until: float, output: RankOutput
) -> Rendezvous:
    id = uuid.uuid4().hex[:8]
    # The host's name, as a person would type it; names of simulated hosts do not resolve.
    simulated = master.host.kind == "simulated"
    address = "127.0.0.1" if simulated else master.host.name
    # On its own name a host may listen at 127.0.1.1, where no other host reaches it.
    listen = address if simulated and not cold else "0.0.0.0"
    master.send(do="port", id=id, address=listen, wanted=wanted, cold=cold)
    try:
        for message in session.messages(until):
            if not message or message[0] != master.host.name:
                continue
            event = message[1]
            if event["event"] == "port" and event["id"] == id:
                if event["taken"]:
                    output.tell(f"port {wanted} is taken on {master.host.name}; using {event['port']}")
                return Rendezvous(id, address, event["port"])
            if event["event"] in {"broken", "gone"}:
                said = event.get("reason") or master.last_words()
                raise HostError(f"{master.host.name} cannot serve the rendezvous: {said}")
        raise HostError(f"{master.host.name} was not ready in time: give more time, or is the machine overloaded?")
    except BaseException:
        # Nobody will use the port any more.
        master.send(do="stop", id=id)
        raise


def _port_clash(attempt: Attempt) -> bool:
    return any("EADDRINUSE" in (message.get("reason") or "") for message in attempt.ended.values())
