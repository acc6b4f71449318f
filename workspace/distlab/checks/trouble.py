"""From a job that did not end well to one sentence about the attendee's file."""

import signal
from collections.abc import Mapping
from typing import Any

from distlab.checks.result import plural
from distlab.launch import RunResult
from distlab.launch.verdict import Ending, lost_a_peer

LONGEST = 160
# What torch says -> what to do. Errors that attendees meet in more than one exercise; a lesson adds its own.
HINTS = {
    "Default process group has not been initialized": "join it first, with dist.init_process_group()",
    "mutually exclusive with shuffle": "the sampler shuffles; leave shuffle out of the DataLoader",
    "device_ids": "a model on the CPU is wrapped without device_ids",
    "NCCL": "this check runs on CPUs; leave the backend out and torch chooses one for each device",
    "initialize the default process group twice": "one dist.init_process_group() is enough",
    "has no attribute 'set_epoch'": "set_epoch belongs to the DistributedSampler",
    "does not require grad": "frozen parameters have no gradient",
    "Found no NVIDIA driver": "this check runs on CPUs; the rank knows its device",
}


def explain(result: RunResult, file: str, hints: Mapping[str, str]) -> str:
    """What kept the attendee's file from running to its end on every rank.

    Args:
        hints: what to do, by a part of what an error says; beside HINTS.
    """
    hosts = {end.rank: end.host for end in result.ranks}
    if missing := result.records("missing"):
        return f"{file} {missing[0]['what']}"
    raised = sorted(result.records("raised"), key=lambda record: record["time"])
    own = [record for record in raised if not _innocent(record)]
    if own:
        everyone = "every rank" if len(hosts) > 1 else ""
        one = f"rank {own[0]['rank']} on {own[0]['host']}"
        return _say_raised(own[0], file, everyone if len(own) == len(hosts) else one, {**hints, **HINTS})
    # When one rank dies, its host ends the others with SIGTERM. gloo aborts when sizes do not match.
    killed = {end.rank: -end.status for end in result.ranks if end.how == "killed" and end.status != -signal.SIGTERM}
    # A rank may first report that it stands still, and then fail because its peer is gone.
    waiting = {record["rank"]: record for record in [*raised, *result.records("stuck")]}
    if not waiting or set(killed.values()) - {signal.SIGABRT}:
        return f"{file}: {_first_line(result.error).rstrip('.')}"
    fates = dict.fromkeys(hosts, "did not come")
    fates |= dict.fromkeys(result.last("finished"), "had finished") | dict.fromkeys(killed, "broke off")
    return _say_waiting(waiting, {rank: fate for rank, fate in fates.items() if rank not in waiting}, file)


def _first_line(text: str | None) -> str:
    return (text or "").strip().partition("\n")[0]


def _innocent(record: dict[str, Any]) -> bool:
    end = {"how": "raised", "type": record["type"], "message": record["message"]}
    return lost_a_peer(Ending(record["rank"], record["host"], 1, end))


def _say_raised(record: dict[str, Any], file: str, who: str, hints: Mapping[str, str]) -> str:
    where = f"{file}, line {record['line']}" if "line" in record else file
    of = f", {who}" if who else ""
    # torch raises it too, for what a backend cannot do.
    if record["type"] == "NotImplementedError" and record.get("code", "").startswith("raise"):
        return f"{where}: {record['code']} is still to be replaced by your code"
    whole = f"{record['type']}: {record['message']}"
    message = _first_line(record["message"])
    if len(message) > LONGEST:
        message = message[:LONGEST].rsplit(" ", 1)[0] + " ..."
    hint = next((f"; {advice}" for part, advice in hints.items() if part in whole), "")
    said = f"{record['type']}: {message}".rstrip(" .,:;!")
    return f"{where}{of}: {said}{hint}"


def _place(record: dict[str, Any]) -> str:
    return f"at line {record['line']}, {record['code']}" if "line" in record else "outside the file"


def _say_waiting(waiting: dict[int, dict[str, Any]], others: dict[int, str], file: str) -> str:
    """Who stood where: `ranks 1 and 3 waited at line 57, dist.all_reduce(total), while rank 0 had finished`."""
    if not others and len({_place(record) for record in waiting.values()}) == 1:
        record = next(iter(waiting.values()))
        seconds = f", after {record['seconds']:.0f} s" if "seconds" in record else ""
        return f"{file}: {'every rank' if len(waiting) > 1 else 'it'} was still {_place(record)}{seconds}"
    groups: dict[str, list[int]] = {}
    for rank, record in sorted(waiting.items()):
        groups.setdefault(f"waited {_place(record)}", []).append(rank)
    for rank, fate in sorted(others.items()):
        groups.setdefault(fate, []).append(rank)
    parts = [f"{plural('rank', ranks)} {fate}" for fate, ranks in groups.items()]
    return f"{file}: {', while '.join([parts[0], ' and '.join(parts[1:])])}: all ranks must take the same steps"
