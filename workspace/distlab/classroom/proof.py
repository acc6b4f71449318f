"""The proof: two nodes of their own train with four ranks, from either side, and are removed again."""

import json
import shutil
import signal
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from distlab.classroom import engine, gpus, seats
from distlab.classroom.folder import prepare
from distlab.classroom.ports import find_free
from distlab.classroom.project import NODES, Project, build, make_project
from distlab.classroom.settings import ROOT, ClassroomError
from distlab.doctor.finding import Finding

NAME = "distlab-preflight"
# Beyond the last seat, so that no seat's network is in its way.
NUMBER = seats.LAST + 1
FOLDER = ROOT / "seats" / "preflight"
COMMAND = ("distlab", "run", "ddp", "--hosts", "node1:2,node2:2", "--json", "--", "--epochs", "1", "--limit", "4000")
RANKS = ["node1", "node1", "node2", "node2"]
RUN_SECONDS = 660
SETTLE_SECONDS = 1.0
CAUSES = "docs/troubleshooting.md lists causes"
OLD_DRIVER = "the nodes have GPUs all the same: update the driver, which may be older than torch's CUDA"
WRITABLE = "see that WORKSHOP_UID, if set, owns it, that Docker is not rootless, and that SELinux lets containers write"


@contextmanager
def _undisturbed() -> Iterator[None]:
    """Signals are ignored meanwhile: who interrupts a second time still wants nothing to be left."""
    numbers = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
    before = [signal.signal(number, signal.SIG_IGN) for number in numbers]
    try:
        yield
    finally:
        for number, handler in zip(numbers, before, strict=True):
            signal.signal(number, handler)


def clear(project: Project, folder: Path = FOLDER) -> list[str]:
    """Remove the project and its folder: what is left all the same."""
    with _undisturbed():
        try:
            project.remove()
            # What an interrupted start had asked of the engine may have been made after that.
            time.sleep(SETTLE_SECONDS)
            left = project.remove()
        except ClassroomError as error:
            left = [f"{project.name} ({error})"]
        shutil.rmtree(folder, ignore_errors=True)
    return [*left, *([str(folder)] if folder.exists() else [])]


def read_run(said: str, complaint: str, node: str, with_gpus: bool = False) -> Finding:
    """What the JSON line of `distlab run` proves."""
    name = f"from {node}"
    lines = [line for line in said.splitlines() if line.startswith("{")]
    if not lines:
        return Finding(name, "wrong", engine.last_line(complaint), CAUSES)
    result = json.loads(lines[-1])
    if not result["ok"]:
        return Finding(name, "wrong", str(result["error"]).partition("\n")[0], CAUSES)
    ranks = [rank["host"] for rank in result["ranks"]]
    if ranks != RANKS:
        return Finding(name, "wrong", f"ranks ran on {', '.join(ranks)}, not on {', '.join(RANKS)}", CAUSES)
    setups = [one for records in result["metrics"].values() for one in records if one["event"] == "setup"]
    devices = ", ".join(sorted({f"{one['device']} ({one['backend']})" for one in setups}))
    text = f"4 ranks on node1 and node2 trained on {devices}, in {result['seconds']:.0f} s"
    if with_gpus and any(one["device"] == "cpu" for one in setups):
        return Finding(name, "note", text, OLD_DRIVER)
    return Finding(name, "fine", text)


def _ask_nodes(with_gpus: bool) -> Iterator[Finding]:
    nodes = {one.service: one.id for one in engine.containers(NAME)}
    for node in NODES:
        if engine.ask("docker", "exec", nodes[node], "test", "-w", "/workspace").returncode:
            yield Finding(f"{node} writes", "wrong", "it cannot write its workspace", WRITABLE)
    for node in NODES:
        print(f"{NAME}: training from {node}")
        done = engine.ask("docker", "exec", nodes[node], *COMMAND, seconds=RUN_SECONDS)
        yield read_run(done.stdout, done.stderr, node, with_gpus)


def make(
    settings: Mapping[str, str], found: gpus.Gpus, name: str = NAME, folder: Path = FOLDER, number: int = NUMBER
) -> Project:
    """A project for a while, on free ports of this machine and in a folder of its own; the image is built.

    Raises:
        ClassroomError: no compose answers, or there is no image.
    """
    compose, _ = engine.find_compose()
    subnet = seats.subnet(number, settings) if settings.get("WORKSHOP_SUBNET") else ""
    ports = dict(zip(seats.PORTS, find_free(len(seats.PORTS)), strict=True))
    place = prepare(folder / "workspace", settings, own=True)
    project = make_project(name, compose, place, ports, found, subnet, WORKSHOP_BIND="127.0.0.1")
    if note := build(project, settings["WORKSHOP_IMAGE"]):
        print(note)
    return project


def prove(settings: Mapping[str, str]) -> list[Finding]:
    """Build if need be, start two nodes, train from each of them, and remove all of it, whatever happens.

    Raises:
        ClassroomError: no compose answers.
    """
    compose, _ = engine.find_compose()
    project = Project(NAME, compose)
    # One that was killed could not clear up.
    clear(project)
    findings = []
    try:
        found = gpus.choose(settings)
        project = make(settings, found)
        print(f"{NAME}: starting")
        project.start()
        project.wait()
        findings += _ask_nodes(bool(found.node1))
    except OSError as error:
        findings.append(Finding("nodes", "wrong", str(error), "mend that, and run make preflight again"))
    except ClassroomError as error:
        *log, text = error.text.splitlines()
        print(*log, sep="\n")
        findings.append(Finding("nodes", "wrong", text, error.remedy))
    finally:
        print(f"{NAME}: being removed")
        left = clear(project)
        if left:
            print(f"{NAME}: left over: {', '.join(left)}")
    if left:
        findings.append(Finding("tidying", "wrong", f"left over: {', '.join(left)}", "remove it with docker, or rm -r"))
    return findings
