"""The night before: will the workshop work on this machine? Looks, and then proves it."""

import re
import shutil
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

from distlab.classroom import engine, gpus, ports, seats
from distlab.classroom.proof import prove
from distlab.classroom.seats import Seat
from distlab.classroom.settings import ClassroomError
from distlab.doctor.diagnosis import Diagnosis, print_diagnoses
from distlab.hosts.host import machine_cores

GIB = 1 << 30
SEAT_BYTES = 4 * GIB
SHARED_MEMORY_BYTES = GIB // 4
BUILD_BYTES = 15 * GIB
DISK_BYTES = 2 * GIB
SEAT_CORES = 2
# The engine's own address pools have 31 networks, and one of them is its bridge.
POOLS = 25
UNITS = {"": 1, "b": 1, "k": 1 << 10, "kb": 1 << 10, "m": 1 << 20, "mb": 1 << 20, "g": GIB, "gb": GIB}


def check_engine() -> Diagnosis:
    """The engine answers and is new enough."""
    return Diagnosis("engine", "fine", f"Docker {engine.engine_version()}")


def check_compose() -> Diagnosis:
    """Compose is there and new enough."""
    return Diagnosis("compose", "fine", f"Docker Compose {engine.compose_version()}")


def check_gpus(settings: Mapping[str, str]) -> Diagnosis:
    """The driver and Docker agree about GPUs."""
    found = gpus.choose(settings)
    return Diagnosis("GPUs", "note" if found.remedy else "fine", found.text, found.remedy)


def check_ports(room: list[Seat], settings: Mapping[str, str], running: list[engine.Container]) -> Diagnosis:
    """Each seat's ports are free."""
    found = list(ports.clashes(room, settings, running))
    if found:
        more = f" (and {len(found) - 1} more)" if len(found) > 1 else ""
        return Diagnosis("ports", "wrong", found[0].text + more, found[0].remedy)
    first, last = (", ".join(map(str, sorted(seats.ports(seat, settings).values()))) for seat in (room[0], room[-1]))
    to = f" to {last}" if len(room) > 1 else ""
    return Diagnosis("ports", "fine", f"{first}{to} are free on {settings['WORKSHOP_BIND']}")


def check_disk(settings: Mapping[str, str]) -> Diagnosis:
    """There is room for the image where the engine keeps it."""
    image = settings["WORKSHOP_IMAGE"]
    here = engine.image_exists(image)
    needed, why = (DISK_BYTES, f"{image} is built") if here else (BUILD_BYTES, f"{image} is still to be built")
    root = Path(engine.info("{{.DockerRootDir}}"))
    try:
        free = shutil.disk_usage(root).free
    except OSError as error:
        remedy = f"see to it that {needed // GIB} GiB are free there"
        return Diagnosis("disk", "note", f"{root} cannot be looked at ({error.strerror}); {why}", remedy)
    text = f"{free / GIB:.0f} GiB free in {root}; {why}"
    if free < needed:
        return Diagnosis("disk", "wrong", text, f"free {needed // GIB} GiB: docker system df shows what could go")
    return Diagnosis("disk", "fine", text)


def memory(text: str) -> tuple[int, int]:
    """All and available bytes of /proc/meminfo."""
    found = {name: int(value) << 10 for name, value in re.findall(r"^(\w+):\s+(\d+) kB", text, re.MULTILINE)}
    return found["MemTotal"], found["MemAvailable"]


def check_memory(room: list[Seat]) -> Diagnosis:
    """There is memory for four ranks and two notebooks at each seat."""
    everything, free = memory(Path("/proc/meminfo").read_text())
    needed = len(room) * SEAT_BYTES
    text = f"{free / GIB:.1f} of {everything / GIB:.1f} GiB free; {_count(room)} {needed // GIB} GiB"
    if everything < needed:
        fitting = everything // SEAT_BYTES
        remedy = f"make preflight SEATS={fitting} fits" if fitting else "take a machine that has 4 GiB"
        return Diagnosis("memory", "wrong", text, remedy)
    if free < needed:
        return Diagnosis("memory", "note", text, "close other programs")
    return Diagnosis("memory", "fine", text)


def check_shared_memory(settings: Mapping[str, str]) -> Diagnosis:
    """Each node's /dev/shm is large enough for DataLoader workers and NCCL."""
    text = settings["WORKSHOP_SHM"]
    match = re.fullmatch(r"([0-9]+(?:\.[0-9]+)?)\s*([a-z]*)", text.lower())
    if not match or match[2] not in UNITS:
        return Diagnosis("shared memory", "wrong", f"WORKSHOP_SHM={text} is no size", "write one such as 1gb")
    said = f"WORKSHOP_SHM={text} for each node"
    if float(match[1]) * UNITS[match[2]] < SHARED_MEMORY_BYTES:
        return Diagnosis(
            "shared memory", "wrong", said, "loader workers die of it: set at least 256mb, or leave it out"
        )
    return Diagnosis("shared memory", "fine", said)


def check_cores(room: list[Seat]) -> Diagnosis:
    """The cores, which all seats share."""
    cores = machine_cores()
    text = f"{cores}; {_count(room)} {len(room) * SEAT_CORES} when all train at once"
    if cores < len(room) * SEAT_CORES:
        return Diagnosis(
            "cores", "note", text, "lessons run, but slower when all train at once: let pairs share a seat"
        )
    return Diagnosis("cores", "fine", text)


def check_networks(room: list[Seat], settings: Mapping[str, str]) -> Diagnosis:
    """Each seat gets a network of its own."""
    if settings.get("WORKSHOP_SUBNET"):
        first, last = seats.subnet(room[0].number, settings), seats.subnet(room[-1].number, settings)
        return Diagnosis("networks", "fine", first if first == last else f"{first} to {last}")
    text = "the engine chooses them"
    if len(room) > POOLS:
        return Diagnosis(
            "networks", "note", f"{text}, and has about {POOLS}", "write WORKSHOP_SUBNET=10.123.0.0/24 to .env"
        )
    return Diagnosis("networks", "fine", text)


def _count(room: list[Seat]) -> str:
    return f"{len(room)} seats want" if len(room) > 1 else "a seat wants"


def _checks(room: list[Seat], settings: Mapping[str, str]) -> Iterator[tuple[str, Callable[[], Diagnosis]]]:
    yield "memory", lambda: check_memory(room)
    yield "cores", lambda: check_cores(room)
    yield "shared memory", lambda: check_shared_memory(settings)
    yield "networks", lambda: check_networks(room, settings)


def _engine_checks(room: list[Seat], settings: Mapping[str, str]) -> Iterator[tuple[str, Callable[[], Diagnosis]]]:
    yield "compose", check_compose
    yield "GPUs", lambda: check_gpus(settings)
    yield "disk", lambda: check_disk(settings)
    yield "ports", lambda: check_ports(room, settings, engine.containers())


def _look(name: str, check: Callable[[], Diagnosis]) -> Diagnosis:
    """What a check finds; one that itself fails is a diagnosis, too."""
    try:
        return check()
    except ClassroomError as error:
        return Diagnosis(name, "wrong", error.text, error.remedy)
    except Exception as error:
        return Diagnosis(
            name, "wrong", f"the check failed: {type(error).__name__}: {error}", "tell whoever maintains it"
        )


def _prove_or_say_why_not(diagnoses: list[Diagnosis], settings: Mapping[str, str], start: bool) -> list[Diagnosis]:
    if not start:
        remedy = "without --no-start, preflight trains on four ranks"
        return [Diagnosis("ranks", "note", "not started, so nothing is proved", remedy)]
    if not all(diagnosis.ok for diagnosis in diagnoses if diagnosis.name in ("engine", "compose")):
        return [Diagnosis("ranks", "wrong", "not started, since Docker is not ready", "mend what is wrong above")]
    return prove(settings)


def preflight(room: list[Seat], settings: Mapping[str, str], start: bool = True) -> int:
    """Print all diagnoses; the last ones come from four ranks that train. 1 when something is wrong."""
    diagnoses = [_look("engine", check_engine)]
    if diagnoses[0].ok:
        diagnoses += [_look(name, check) for name, check in _engine_checks(room, settings)]
    diagnoses += [_look(name, check) for name, check in _checks(room, settings)]
    diagnoses += _prove_or_say_why_not(diagnoses, settings, start)
    print_diagnoses(
        diagnoses, "The workshop will run on this machine." if start else "Nothing is wrong, as far as it goes."
    )
    return 0 if all(diagnosis.ok for diagnosis in diagnoses) else 1
