"""Which GPUs each node gets, and the one sentence that says so."""

import json
from collections.abc import Mapping
from dataclasses import dataclass

from distlab.classroom.engine import ask, info, last_line

NONE = ("none", "void")
TOOLKIT = (
    "install the NVIDIA container toolkit, then "
    "sudo nvidia-ctk runtime configure --runtime=docker && sudo systemctl restart docker"
)
DRIVER = "mend the driver until nvidia-smi lists the GPUs"


@dataclass(frozen=True)
class Gpus:
    """`node1` and `node2` as NVIDIA_VISIBLE_DEVICES wants them, empty without GPUs; and why."""

    text: str
    node1: str = ""
    node2: str = ""
    remedy: str = ""


@dataclass(frozen=True)
class Driver:
    """The GPUs that nvidia-smi lists, or what it says when it fails."""

    gpus: tuple[tuple[str, str], ...] = ()
    failure: str = ""


def ask_driver() -> Driver:
    """Number and name of each GPU."""
    done = ask("nvidia-smi", "--query-gpu=index,name", "--format=csv,noheader")
    if done.returncode == 127:
        return Driver()
    if done.returncode:
        return Driver(failure=last_line(done.stdout + done.stderr))
    rows = [line.partition(",") for line in done.stdout.splitlines() if line.strip()]
    return Driver(tuple((index.strip(), name.strip()) for index, _, name in rows))


def divide(driver: Driver, runtime: bool, settings: Mapping[str, str]) -> Gpus:
    """Two GPUs for each node, or one, or one for both, or none; NODE1_GPUS and NODE2_GPUS win."""
    chosen = [settings.get("NODE1_GPUS", ""), settings.get("NODE2_GPUS", "")]
    if all(gpus in NONE for gpus in chosen):
        return Gpus("not used, as NODE1_GPUS and NODE2_GPUS say; everything runs on the CPU")
    if not driver.gpus and not all(chosen):
        if driver.failure:
            return Gpus(f"nvidia-smi fails ({driver.failure}); everything runs on the CPU", remedy=DRIVER)
        return Gpus("none, so everything runs on the CPU")
    names = sorted({name for _, name in driver.gpus})
    if not runtime:
        return Gpus(
            f"{' and '.join(names) or 'there'}, but Docker has no nvidia runtime; everything runs on the CPU",
            remedy=TOOLKIT,
        )
    all_here = [index for index, _ in driver.gpus]
    each = 2 if len(all_here) >= 4 else 1
    found = [",".join(all_here[:each]), ",".join(all_here[each : 2 * each] or all_here[:each])]
    node1, node2 = (own or here for own, here in zip(chosen, found, strict=True))
    text = f"node1 has {node1}, node2 has {node2}"
    if any(chosen):
        text += ", as NODE1_GPUS and NODE2_GPUS say"
    elif len(all_here) == 1:
        text = f"both nodes have {node1}; ranks share it over gloo"
    elif each == 1:
        text += "; the ranks of a node share it over gloo"
    return Gpus(f"{text} ({', '.join(names)})" if names else text, node1, node2)


def choose(settings: Mapping[str, str]) -> Gpus:
    """The GPUs of each node on this machine.

    Raises:
        ClassroomError: the engine gave no answer.
    """
    return divide(ask_driver(), "nvidia" in (json.loads(info("{{json .Runtimes}}")) or {}), settings)
