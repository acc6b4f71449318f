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

from distlab import course, horovod_wheel
from distlab.doctor.finding import Finding
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


def check_python() -> Finding:
    """Python is new enough."""
    text = f"Python {sys.version.split()[0]}"
    if sys.version_info < OLDEST_PYTHON:
        return Finding("Python", "wrong", text, "install Python 3.11 or newer, delete .venv, and run make lab again")
    return Finding("Python", "fine", text)


def check_pair() -> Finding:
    """torch and torchvision are the pair that was built together."""
    versions = {}
    for name in ("torch", "torchvision"):
        try:
            versions[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            return Finding("torch", "wrong", f"{name} is not installed", "run make lab, which installs pinned versions")
    text = ", ".join(f"{name} {version}" for name, version in versions.items())
    for needed in importlib.metadata.requires("torchvision") or []:
        match = re.match(r"torch\s*\(?==\s*([\w.+]+)", needed)
        if match and versions["torch"].partition("+")[0] != match[1]:
            remedy = f"torchvision wants torch {match[1]}: {REINSTALL}"
            return Finding("torch", "wrong", text, remedy)
    return Finding("torch", "fine", text)


def check_imports() -> Finding:
    """torch and torchvision import together, asked of another process so that this one stays light."""
    answer = subprocess.run(
        [sys.executable, "-c", IMPORTS], capture_output=True, text=True, timeout=IMPORT_SECONDS, check=False
    )
    if answer.returncode:
        last = answer.stderr.strip().splitlines()[-1] if answer.stderr.strip() else f"status {answer.returncode}"
        return Finding("backends", "wrong", last, f"torch and torchvision do not fit: {REINSTALL}")
    facts = json.loads(answer.stdout.splitlines()[-1])
    if not facts["gloo"]:
        return Finding("backends", "wrong", "this torch has no gloo", "install the torch of constraints.txt")
    driver = len(list_gpus())
    if driver and facts["gpus"] < driver:
        return Finding(
            "backends",
            "note",
            f"the driver shows {driver} GPUs, torch sees {facts['gpus']}",
            "the driver may be older than torch's CUDA: update it, or lessons run on the CPU",
        )
    nccl = " and NCCL" if facts["nccl"] and facts["gpus"] else " (no GPU for NCCL)"
    return Finding("backends", "fine", f"gloo{nccl}")


def check_gpus() -> Finding:
    """GPUs as the driver shows them."""
    gpus = list_gpus()
    if not gpus:
        return Finding("GPUs", "fine", "none: every lesson runs on the CPU")
    names = ", ".join(f"{gpu.index}: {gpu.name} ({gpu.memory / GIB:.0f} GiB)" for gpu in gpus)
    slots = find().slots
    if len(gpus) < slots:
        return Finding("GPUs", "note", names, f"fewer than {slots} slots: ranks share them over gloo, not NCCL")
    return Finding("GPUs", "fine", names)


def check_hosts() -> Finding:
    """Hosts and slots."""
    try:
        found = find()
    except HostsError as error:
        return Finding("hosts", "wrong", str(error), "correct it, or unset it to use two simulated hosts")
    names = ", ".join(f"{host.name} with {host.slots}" for host in found.hosts)
    return Finding("hosts", "fine", f"{names} slots ({found.source})")


def check_machine() -> Finding:
    """Cores and memory that are free now."""
    cores, free = machine_cores(), psutil.virtual_memory().available
    text = f"{cores} cores, {free / GIB:.1f} GiB of memory free"
    if free < MEMORY_BYTES:
        return Finding("machine", "note", text, "four ranks and a notebook want 4 GiB: close other programs")
    if cores < 4:
        return Finding("machine", "fine", f"{text}; four ranks share the cores, so more ranks are not faster here")
    return Finding("machine", "fine", text)


def check_shared_memory() -> Finding:
    """/dev/shm, which DataLoader workers and NCCL use."""
    place = Path("/dev/shm")
    if not place.exists():
        return Finding("shared memory", "fine", "no /dev/shm on this system")
    size = shutil.disk_usage(place).total
    text = f"/dev/shm holds {size / GIB:.2f} GiB"
    if size < SHARED_MEMORY_BYTES:
        return Finding(
            "shared memory",
            "note",
            text,
            "loader workers may die of it: start the container with --shm-size=1g. An existing container keeps "
            "its old size, so re-create it",
        )
    return Finding("shared memory", "fine", text)


def check_run_folder() -> Finding:
    """Runs can be written, and there is room."""
    try:
        root = make_folder(runs_root())
    except OSError as error:
        return Finding("run folder", "wrong", error.strerror or str(error))
    free = shutil.disk_usage(root).free
    text = f"{free / GIB:.0f} GiB free"
    if free < DISK_BYTES:
        return Finding(
            "run folder", "note", text, f"free some space on the disk of {_short(root)}, or set DISTLAB_RUNS"
        )
    return Finding("run folder", "fine", text)


def check_workspace() -> Finding:
    """What an attendee writes can be saved."""
    trouble = workspace_trouble()
    if trouble:
        return Finding("workspace", "note", f"notebooks and exercises cannot be saved: {trouble[0]}", trouble[1])
    return Finding("workspace", "fine", "notebooks and exercises can be saved")


def check_network() -> Finding:
    """Loopback works and this machine knows its own name, without which gloo and Jupyter stumble."""
    try:
        with socket.create_server(("127.0.0.1", 0)) as server:
            socket.create_connection(server.getsockname(), timeout=5).close()
    except OSError as error:
        text = f"loopback does not work: {error.strerror}"
        return Finding("network", "wrong", text, "check the firewall on this machine")
    name = socket.gethostname()
    try:
        address = socket.gethostbyname(name)
    except OSError:
        remedy = f"add its address on the network and {name} to /etc/hosts (127.0.0.1 if it is alone)"
        return Finding("network", "note", f"{name}, this machine, does not resolve", remedy)
    return Finding("network", "fine", f"loopback works; {name} is {address}")


def _short(path: Path) -> str:
    home = Path.home()
    return f"~/{path.relative_to(home)}" if path.is_relative_to(home) else str(path)


def check_data() -> Finding:
    """The default images are prepared."""
    from distlab.data import store

    root = store.data_root()
    if store.find(root / "fashion-mnist"):
        return Finding("data", "fine", f"Fashion-MNIST is prepared in {_short(root)}")
    instead = "scikit-learn's digits" if store.find(root / "digits") else "nothing yet"
    return Finding("data", "note", f"Fashion-MNIST is not prepared; {instead} in its place", "run distlab data")


def check_leftovers() -> Finding:
    """Agents of other notebooks that still hold memory and cores."""
    own = os.getpid()
    agents = []
    for process in psutil.process_iter(["pid", "ppid", "cmdline"]):
        words = process.info["cmdline"] or []
        if words[1:3] == ["-m", "distlab.agent"] and process.info["ppid"] != own:
            agents.append(str(process.info["pid"]))
    if agents:
        text = f"agents of open notebooks: {', '.join(agents)}"
        return Finding("other runs", "note", text, "shut down the kernels that you do not need")
    return Finding("other runs", "fine", "none")


def check_horovod() -> Finding:
    """Horovod, which is built here, maybe at this very moment; only one lesson waits for it."""
    there = horovod_wheel.current()
    return Finding("Horovod", "fine" if there.name == "ready" else "note", there.text, there.remedy)


def check_lessons() -> Finding:
    """Each lesson of this copy has what it needs."""
    here = [lesson for lesson in course.lessons() if lesson.here]
    lacking = [
        f"{lesson.title} needs {need}"
        for lesson in here
        for need in lesson.needs
        if need != "horovod" and importlib.util.find_spec(need) is None
    ]
    if not here:
        return Finding("lessons", "wrong", "no notebook found", "is this a whole copy of the workshop?")
    if lacking:
        return Finding("lessons", "wrong", "; ".join(lacking), "run make lab again")
    return Finding("lessons", "fine", f"{len(here)} of {len(course.lessons())} lessons are here")


def check_meeting() -> Finding:
    """Ranks on all hosts really meet."""
    try:
        # A session of its own, so that the doctor leaves nothing behind.
        with Session() as session:
            result = run("env_report", quiet=True, timeout=MEET_SECONDS, session=session)
    except (RunFailed, HostError, HostsError, OSError) as error:
        return Finding("ranks", "wrong", str(error).splitlines()[0], "docs/troubleshooting.md lists causes")
    text = f"{len(result.ranks)} ranks met on {' and '.join(result.hosts)} in {result.seconds:.1f} s"
    return Finding("ranks", "fine", text)


CHECKS: tuple[Callable[[], Finding], ...] = (
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
    check_horovod,
    check_lessons,
)


def examine(meet: bool = True) -> list[Finding]:
    """All findings. With `meet`, ranks are started on all hosts as the last and real proof.

    A check that itself fails is a finding, never a traceback.
    """
    findings = []
    for check in (*CHECKS, check_meeting) if meet else CHECKS:
        name = check.__name__.removeprefix("check_").replace("_", " ")
        try:
            findings.append(check())
        except Exception as error:
            findings.append(Finding(name, "wrong", f"the check failed: {type(error).__name__}: {error}"))
    return findings
