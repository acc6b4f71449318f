"""A placeholder: what a launcher such as mpirun starts where the rank would be; the agent forks the rank.

Launchers start a process per rank on every host. This one finds the folder of its host's agent for
the job, asks the agent to fork the rank, which is warm there, and ends with the rank's exit status when
the rank has ended. For a cold start it starts the rank itself, with the environment and the log files
that it would have under torchrun.

    python -S placeholder.py JOB node1:2,node2:2 RANK_VARIABLE

It imports nothing but Python's own library, so that it starts at once and takes little memory.
"""

import ctypes
import json
import os
import signal
import subprocess
import sys
import time
from contextlib import suppress

NO_AGENT = 3
LOOK_SECONDS = 0.02
# An agent that is busy with imports opens its door late.
DOOR_SECONDS = 30.0
PR_SET_PDEATHSIG = 1
SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)


def door(job: str, host: str) -> str:
    """A job's door on a host: the link by which placeholders find their agent's folder."""
    return f"/tmp/distlab-{os.getuid()}-{job}-{host}"


def close_doors(folder: str) -> None:
    """Remove the doors that lead to an agent's folder, also when that is gone."""
    for name in os.listdir("/tmp"):
        if name.startswith(f"distlab-{os.getuid()}-"):
            # Another agent may close its own at the same moment.
            with suppress(OSError):
                if os.readlink(f"/tmp/{name}").startswith(f"{folder}/"):
                    os.unlink(f"/tmp/{name}")


def own_place(table: str, rank: int) -> dict:
    """Host and local rank, from the rank alone: launchers fill hosts in the order in which they are named.

    >>> own_place("node1:2,node2:2", 2)
    {'rank': 2, 'host': 'node2', 'local_rank': 0, 'local_world_size': 2, 'host_index': 1, 'host_count': 2}
    """
    hosts = [(name, int(slots)) for name, _, slots in (part.rpartition(":") for part in table.split(","))]
    first = 0
    for index, (name, slots) in enumerate(hosts):
        if rank < first + slots:
            place = {"rank": rank, "host": name, "local_rank": rank - first}
            return place | {"local_world_size": slots, "host_index": index, "host_count": len(hosts)}
        first += slots
    raise SystemExit(f"rank {rank} lies outside the ranks of {table}")


def own_variables(place: dict, names: dict[str, str]) -> dict[str, str]:
    """The launcher's variables as on real hosts; it takes all simulated hosts for one machine.

    >>> own_variables({"rank": 2, "host": "node2", "local_rank": 0}, {"rank": "PMI_RANK", "local_rank": "PMI_LOCAL"})
    {'PMI_RANK': '2', 'PMI_LOCAL': '0'}
    """
    return {names[field]: str(value) for field, value in place.items() if field in names}


def open_door(job: str, host: str) -> str | None:
    """The agent's folder once it is there; None when it does not come."""
    until = time.monotonic() + DOOR_SECONDS
    while time.monotonic() < until:
        try:
            # Anyone may write in /tmp; only our own agent made this one.
            if os.lstat(door(job, host)).st_uid == os.getuid():
                return os.path.realpath(door(job, host))
        except FileNotFoundError:
            pass
        time.sleep(0.05)
    return None


def write(path: str, what: dict) -> None:
    """As `distlab.whole.write_whole`, which is more than Python's own library."""
    with open(path + ".half", "w") as half:
        json.dump(what, half)
    os.replace(path + ".half", path)


def _read(path: str) -> dict:
    with open(path) as file:
        return json.load(file)


def _end_with_parent() -> None:
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, int(signal.SIGKILL))


def main() -> int:
    """Wait until the rank has ended; its status, as a shell says it."""
    job, table, rank_variable = sys.argv[1:]
    _end_with_parent()
    place = own_place(table, int(os.environ[rank_variable]))
    folder = open_door(job, place["host"])
    if folder is None:
        print(f"rank {place['rank']} finds no agent of this job on {place['host']}", file=sys.stderr)
        return NO_AGENT
    spec = _read(f"{folder}/spec.json")
    environ = {**os.environ, **spec["env"], **own_variables(place, spec["variables"])}
    logs = f"{folder}/logs/ranks/attempt_0/{place['local_rank']}"
    os.makedirs(logs, exist_ok=True)
    said = f"{folder}/placeholders/rank{place['rank']}"
    status = _warm(said, environ, logs) if spec["warm"] else _cold(said, environ, logs, spec)
    return status if status >= 0 else 128 - status


def _warm(said: str, environ: dict[str, str], logs: str) -> int:
    """Ask the agent to fork the rank, and wait for what it says of the end."""
    signals: list[int] = []
    for number in SIGNALS:
        signal.signal(number, lambda number, _: signals.append(number))
    write(f"{said}.asks", {"pid": os.getpid(), "env": environ, "logs": logs})
    while not os.path.exists(f"{said}.ended"):
        if signals and os.path.exists(f"{said}.started"):
            try:
                os.kill(_read(f"{said}.started")["child"], signals.pop())
            except ProcessLookupError:
                pass
        time.sleep(LOOK_SECONDS)
    return _read(f"{said}.ended")["status"]


def _cold(said: str, environ: dict[str, str], logs: str, spec: dict) -> int:
    """Start the rank as one would by hand, and wait for its end."""
    with open(f"{logs}/stdout.log", "ab") as out, open(f"{logs}/stderr.log", "ab") as errors:
        rank = subprocess.Popen(
            [sys.executable, spec["script"], *spec["args"]],
            env=environ,
            cwd=spec["cwd"],
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=errors,
            preexec_fn=_end_with_parent,
        )
    for number in SIGNALS:
        signal.signal(number, lambda number, _: rank.send_signal(number))
    write(f"{said}.started", {"pid": os.getpid(), "child": rank.pid})
    status = rank.wait()
    write(f"{said}.ended", {"status": status, "time": time.time()})
    return status


if __name__ == "__main__":
    sys.exit(main())
