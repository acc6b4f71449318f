"""horovodrun, over gloo or over MPI: all that the package knows of Horovod outside its lesson and its wheel."""

import shlex
from importlib.util import find_spec

from distlab.hosts.interface import leading_to
from distlab.launchers import mpirun
from distlab.launchers.launcher import LOOPBACK, Launcher, Start

SETTINGS = ("HOROVOD_",)
ERRORS = ("HorovodInternalError",)


def lacking() -> str:
    """Why horovodrun is not here, and what to do; empty when it is."""
    if find_spec("horovod"):
        return ""
    from distlab import horovod_wheel

    there = horovod_wheel.current()
    return f"part of Horovod, which is {there.text}: {there.remedy}"


def own_name(host: str) -> str:
    """What Horovod should call the host that this runs on.

    Debian's installer makes a host's own name 127.0.1.1 there. Horovod finds that address at no
    interface, takes the host for another and goes there over ssh.
    """
    return "localhost" if leading_to([host]) == leading_to([]) else host


def command(start: Start) -> list[str]:
    """The words that start the ranks of all hosts and let them meet over gloo."""
    return _command(start, "--gloo")


def command_over_mpi(start: Start) -> list[str]:
    """As `command`, over MPI: horovodrun then becomes an mpirun."""
    return _command(start, "--mpi", f"--mpi-args={shlex.join(mpirun.settings(start))}")


def _command(start: Start, over: str, *more: str) -> list[str]:
    interface = LOOPBACK if start.peers is None else leading_to(start.peers)
    meet = ["--network-interfaces", interface] if interface else []
    waiting = ["--start-timeout", str(max(1, int(start.seconds))), "--disable-cache"]
    placed = ["-np", str(start.ranks), "-H", start.hosts(own_name)]
    return [f"{start.bin}horovodrun", over, *placed, *meet, *waiting, *more, *start.program]


HOROVODRUN = Launcher(
    name="horovodrun",
    variables={
        "rank": "HOROVOD_RANK",
        "world_size": "HOROVOD_SIZE",
        "local_rank": "HOROVOD_LOCAL_RANK",
        "local_world_size": "HOROVOD_LOCAL_SIZE",
        "host_index": "HOROVOD_CROSS_RANK",
        "host_count": "HOROVOD_CROSS_SIZE",
        "host": "HOROVOD_HOSTNAME",
    },
    command=command,
    lacking=lacking,
    interface="HOROVOD_GLOO_IFACE",
    settings=SETTINGS,
    errors=ERRORS,
)
# To its ranks it is an mpirun.
HOROVODRUN_MPI = Launcher("horovodrun-mpi", mpirun.VARIABLES, command_over_mpi, lacking)
