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
from distlab.classroom.project import NODES, Project, build, make_project
from distlab.classroom.settings import ROOT, ClassroomError
from distlab.doctor.diagnosis import Diagnosis
from distlab.ports import free_ports

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
    """Signals are ignored meanwhile, so that a second Ctrl-C does not stop the clearing up."""
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
            # An interrupted start may have made a container after the first removal.
            time.sleep(SETTLE_SECONDS)
            left = project.remove()
        except ClassroomError as error:
            left = [f"{project.name} ({error})"]
        shutil.rmtree(folder, ignore_errors=True)
    return [*left, *([str(folder)] if folder.exists() else [])]


def read_run(said: str, complaint: str, node: str, with_gpus: bool = False) -> Diagnosis:
    """What the JSON line of `distlab run` proves."""
    name = f"from {node}"
    lines = [line for line in said.splitlines() if line.startswith("{")]
    if not lines:
        return Diagnosis(name, "wrong", engine.last_line(complaint), CAUSES)
    result = json.loads(lines[-1])
    if not result["ok"]:
        return Diagnosis(name, "wrong", str(result["error"]).partition("\n")[0], CAUSES)
    ranks = [rank["host"] for rank in result["ranks"]]
    if ranks != RANKS:
        return Diagnosis(name, "wrong", f"ranks ran on {', '.join(ranks)}, not on {', '.join(RANKS)}", CAUSES)
    setups = [record for own in result["metrics"].values() for record in own if record["event"] == "setup"]
    devices = ", ".join(sorted({f"{setup['device']} ({setup['backend']})" for setup in setups}))
    text = f"4 ranks on node1 and node2 trained on {devices}, in {result['seconds']:.0f} s"
    if with_gpus and any(setup["device"] == "cpu" for setup in setups):
        return Diagnosis(name, "note", text, OLD_DRIVER)
    return Diagnosis(name, "fine", text)


def _ask_nodes(project: Project, with_gpus: bool) -> Iterator[Diagnosis]:
    nodes = project.nodes()
    for node in NODES:
        if engine.ask("docker", "exec", nodes[node].id, "test", "-w", "/workspace").returncode:
            yield Diagnosis(f"{node} writes", "wrong", "it cannot write its workspace", WRITABLE)
    for node in NODES:
        print(f"{NAME}: training from {node}")
        done = engine.ask("docker", "exec", nodes[node].id, *COMMAND, seconds=RUN_SECONDS)
        yield read_run(done.stdout, done.stderr, node, with_gpus)


def make(
    settings: Mapping[str, str], found: gpus.Gpus, name: str = NAME, folder: Path = FOLDER, number: int = NUMBER
) -> Project:
    """A project for a while, on free ports of this machine and in a folder of its own; the image is built.

    Raises:
        ClassroomError: there is no image and none can be built.
    """
    subnet = seats.subnet(number, settings) if settings.get("WORKSHOP_SUBNET") else ""
    ports = dict(zip(seats.PORTS, free_ports(len(seats.PORTS)), strict=True))
    place = prepare(folder / "workspace", settings, own=True)
    project = make_project(name, place, ports, found, subnet, WORKSHOP_BIND="127.0.0.1")
    if note := build(project, settings["WORKSHOP_IMAGE"]):
        print(note)
    return project


def prove(settings: Mapping[str, str]) -> list[Diagnosis]:
    """Build if need be, start two nodes, train from each of them, and remove all of it, whatever happens."""
    project = Project(NAME)
    # A preflight that was killed could not clear up.
    clear(project)
    diagnoses: list[Diagnosis] = []
    try:
        found = gpus.choose(settings)
        project = make(settings, found)
        print(f"{NAME}: starting")
        project.start()
        project.wait()
        diagnoses += _ask_nodes(project, bool(found.node1))
    except OSError as error:
        diagnoses.append(Diagnosis("nodes", "wrong", str(error), "mend that, and run make preflight again"))
    except ClassroomError as error:
        *log, text = error.text.splitlines()
        print(*log, sep="\n")
        diagnoses.append(Diagnosis("nodes", "wrong", text, error.remedy))
    finally:
        print(f"{NAME}: being removed")
        left = clear(project)
        if left:
            print(f"{NAME}: left over: {', '.join(left)}")
    if left:
        diagnoses.append(
            Diagnosis("tidying", "wrong", f"left over: {', '.join(left)}", "remove it with docker, or rm -r")
        )
    return diagnoses
