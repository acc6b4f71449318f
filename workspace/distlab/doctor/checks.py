"""The doctor's checks. Each looks at the real thing and none of them touches CUDA from here."""

import importlib.metadata
import importlib.util
import json
import os
import re
import shutil
import socket
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import psutil

from distlab import course
from distlab.doctor.diagnosis import Diagnosis
from distlab.hosts import HostsError, find
from distlab.hosts.gpus import list_gpus
from distlab.hosts.host import machine_cores
from distlab.launch import HostError, RunFailed, Session, run
from distlab.runs import make_folder, runs_root, workspace_trouble

OLDEST_PYTHON = (3, 11)
GIB = 1 << 30
MEMORY_BYTES = 4 * GIB
DISK_BYTES = 2 * GIB
SHARED_MEMORY_BYTES = GIB // 4
IMPORT_SECONDS = 120
MEET_SECONDS = 90
REINSTALL = "pip install -c constraints.txt torch torchvision"
IMPORTS = """
import json, torch, torch.distributed as dist, torchvision
print(json.dumps({
    "gpus": torch.cuda.device_count(), "gloo": dist.is_gloo_available(), "nccl": dist.is_nccl_available(),
}))
"""


def check_python() -> Diagnosis:
    """Python is new enough."""
    text = f"Python {sys.version.split()[0]}"
    if sys.version_info < OLDEST_PYTHON:
        return Diagnosis("Python", "wrong", text, "install Python 3.11 or newer, delete .venv, and run make lab again")
    return Diagnosis("Python", "fine", text)


def check_pair() -> Diagnosis:
    """torch and torchvision are the pair that was built together."""
    versions = {}
    for name in ("torch", "torchvision"):
        try:
            versions[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            return Diagnosis(
                "torch", "wrong", f"{name} is not installed", "run make lab, which installs pinned versions"
            )
    text = ", ".join(f"{name} {version}" for name, version in versions.items())
    for needed in importlib.metadata.requires("torchvision") or []:
        match = re.match(r"torch\s*\(?==\s*([\w.+]+)", needed)
        if match and versions["torch"].partition("+")[0] != match[1]:
            remedy = f"torchvision wants torch {match[1]}: {REINSTALL}"
            return Diagnosis("torch", "wrong", text, remedy)
    return Diagnosis("torch", "fine", text)


def check_imports() -> Diagnosis:
    """torch and torchvision import together, asked of another process so that this one stays light."""
    answer = subprocess.run(
        [sys.executable, "-c", IMPORTS], capture_output=True, text=True, timeout=IMPORT_SECONDS, check=False
    )
    if answer.returncode:
        last = answer.stderr.strip().splitlines()[-1] if answer.stderr.strip() else f"status {answer.returncode}"
        return Diagnosis("backends", "wrong", last, f"torch and torchvision do not fit: {REINSTALL}")
    facts = json.loads(answer.stdout.splitlines()[-1])
    if not facts["gloo"]:
        return Diagnosis("backends", "wrong", "this torch has no gloo", "install the torch of constraints.txt")
    driver = len(list_gpus())
    if driver and facts["gpus"] < driver:
        return Diagnosis(
            "backends",
            "note",
            f"the driver shows {driver} GPUs, torch sees {facts['gpus']}",
            "the driver may be older than torch's CUDA: update it, or lessons run on the CPU",
        )
    nccl = " and NCCL" if facts["nccl"] and facts["gpus"] else " (no GPU for NCCL)"
    return Diagnosis("backends", "fine", f"gloo{nccl}")


def check_gpus() -> Diagnosis:
    """GPUs as the driver shows them."""
    gpus = list_gpus()
    if not gpus:
        return Diagnosis("GPUs", "fine", "none: every lesson runs on the CPU")
    names = ", ".join(f"{gpu.index}: {gpu.name} ({gpu.memory / GIB:.0f} GiB)" for gpu in gpus)
    slots = find().slots
    if len(gpus) < slots:
        return Diagnosis("GPUs", "note", names, f"fewer than {slots} slots: ranks share them over gloo, not NCCL")
    return Diagnosis("GPUs", "fine", names)


def check_hosts() -> Diagnosis:
    """Hosts and slots."""
    try:
        found = find()
    except HostsError as error:
        return Diagnosis("hosts", "wrong", str(error), "correct it, or unset it to use two simulated hosts")
    names = ", ".join(f"{host.name} with {host.slots}" for host in found.hosts)
    return Diagnosis("hosts", "fine", f"{names} slots ({found.source})")


def check_machine() -> Diagnosis:
    """Cores and memory that are free now."""
    cores, free = machine_cores(), psutil.virtual_memory().available
    text = f"{cores} cores, {free / GIB:.1f} GiB of memory free"
    if free < MEMORY_BYTES:
        return Diagnosis("machine", "note", text, "four ranks and a notebook want 4 GiB: close other programs")
    if cores < 4:
        return Diagnosis("machine", "fine", f"{text}; four ranks share the cores, so more ranks are not faster here")
    return Diagnosis("machine", "fine", text)


def check_shared_memory() -> Diagnosis:
    """/dev/shm, which DataLoader workers and NCCL use."""
    place = Path("/dev/shm")
    if not place.exists():
        return Diagnosis("shared memory", "fine", "no /dev/shm on this system")
    size = shutil.disk_usage(place).total
    text = f"/dev/shm holds {size / GIB:.2f} GiB"
    if size < SHARED_MEMORY_BYTES:
        return Diagnosis(
            "shared memory",
            "note",
            text,
            "loader workers may die of it: start the container with --shm-size=1g. An existing container keeps "
            "its old size, so re-create it",
        )
    return Diagnosis("shared memory", "fine", text)


def check_run_folder() -> Diagnosis:
    """Runs can be written, and there is room."""
    try:
        root = make_folder(runs_root())
    except OSError as error:
        return Diagnosis("run folder", "wrong", error.strerror or str(error))
    free = shutil.disk_usage(root).free
    text = f"{free / GIB:.0f} GiB free"
    if free < DISK_BYTES:
        return Diagnosis(
            "run folder", "note", text, f"free some space on the disk of {_short(root)}, or set DISTLAB_RUNS"
        )
    return Diagnosis("run folder", "fine", text)


def check_workspace() -> Diagnosis:
    """What an attendee writes can be saved."""
    trouble = workspace_trouble()
    if trouble:
        return Diagnosis("workspace", "note", f"notebooks and exercises cannot be saved: {trouble[0]}", trouble[1])
    return Diagnosis("workspace", "fine", "notebooks and exercises can be saved")


def check_network() -> Diagnosis:
    """Loopback works and this machine knows its own name, without which gloo and Jupyter stumble."""
    try:
        with socket.create_server(("127.0.0.1", 0)) as server:
            socket.create_connection(server.getsockname(), timeout=5).close()
    except OSError as error:
        text = f"loopback does not work: {error.strerror}"
        return Diagnosis("network", "wrong", text, "check the firewall on this machine")
    name = socket.gethostname()
    try:
        address = socket.gethostbyname(name)
    except OSError:
        remedy = f"add its address on the network and {name} to /etc/hosts (127.0.0.1 if it is alone)"
        return Diagnosis("network", "note", f"{name}, this machine, does not resolve", remedy)
    return Diagnosis("network", "fine", f"loopback works; {name} is {address}")


def _short(path: Path) -> str:
    home = Path.home()
    return f"~/{path.relative_to(home)}" if path.is_relative_to(home) else str(path)


def check_data() -> Diagnosis:
    """The default images are prepared."""
    from distlab.data import store

    root = store.data_root()
    if store.find(root / "fashion-mnist"):
        return Diagnosis("data", "fine", f"Fashion-MNIST is prepared in {_short(root)}")
    instead = "scikit-learn's digits" if store.find(root / "digits") else "nothing yet"
    return Diagnosis("data", "note", f"Fashion-MNIST is not prepared; {instead} in its place", "run distlab data")


def check_leftovers() -> Diagnosis:
    """Agents of other notebooks that still hold memory and cores."""
    own = os.getpid()
    agents = []
    for process in psutil.process_iter(["pid", "ppid", "cmdline"]):
        words = process.info["cmdline"] or []
        if words[1:3] == ["-m", "distlab.agent"] and process.info["ppid"] != own:
            agents.append(str(process.info["pid"]))
    if agents:
        text = f"agents of open notebooks: {', '.join(agents)}"
        return Diagnosis("other runs", "note", text, "shut down the kernels that you do not need")
    return Diagnosis("other runs", "fine", "none")


def check_builds() -> list[Diagnosis]:
    """What is built here for one lesson alone, maybe at this very moment."""
    there = {lesson.title: lesson.builds() for lesson in course.lessons() if lesson.builds}
    return [
        Diagnosis(title, "fine" if built.name == "ready" else "note", built.text, built.remedy)
        for title, built in there.items()
    ]


def check_lessons() -> Diagnosis:
    """Each lesson of this copy has what it needs."""
    here = [lesson for lesson in course.lessons() if lesson.here]
    lacking = [
        f"{lesson.title} needs {need}"
        for lesson in here
        if not lesson.builds
        for need in lesson.needs
        if importlib.util.find_spec(need) is None
    ]
    if not here:
        return Diagnosis("lessons", "wrong", "no notebook found", "is this a whole copy of the workshop?")
    if lacking:
        return Diagnosis("lessons", "wrong", "; ".join(lacking), "run make lab again")
    return Diagnosis("lessons", "fine", f"{len(here)} of {len(course.lessons())} lessons are here")


def check_meeting() -> Diagnosis:
    """Ranks on all hosts really meet."""
    try:
        # A session of its own ends here, agents and all.
        with Session() as session:
            result = run("env_report", quiet=True, timeout=MEET_SECONDS, session=session)
    except (RunFailed, HostError, HostsError, OSError) as error:
        return Diagnosis("ranks", "wrong", str(error).splitlines()[0], "docs/troubleshooting.md lists causes")
    text = f"{len(result.ranks)} ranks met on {' and '.join(result.hosts)} in {result.seconds:.1f} s"
    return Diagnosis("ranks", "fine", text)


CHECKS: tuple[Callable[[], Diagnosis | list[Diagnosis]], ...] = (
    check_python,
    check_pair,
    check_imports,
    check_gpus,
    check_hosts,
    check_machine,
    check_shared_memory,
    check_run_folder,
    check_workspace,
    check_network,
    check_data,
    check_leftovers,
    check_builds,
    check_lessons,
)


def examine(meet: bool = True) -> list[Diagnosis]:
    """All diagnoses. With `meet`, ranks are started on all hosts as the last and real proof.

    A check that itself fails is a diagnosis, never a traceback.
    """
    diagnoses = []
    for check in (*CHECKS, check_meeting) if meet else CHECKS:
        name = check.__name__.removeprefix("check_").replace("_", " ")
        try:
            found = check()
            diagnoses += found if isinstance(found, list) else [found]
        except Exception as error:
            diagnoses.append(Diagnosis(name, "wrong", f"the check failed: {type(error).__name__}: {error}"))
    return diagnoses
