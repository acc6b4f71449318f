"""How a run ended: what its hosts and ranks left behind, as one result and one message."""

import signal
import time
from pathlib import Path

from distlab.launch.result import RankEnd, RunResult
from distlab.launch.verdict import Ending, blame, describe_late, exit_status, trim_stack
from distlab.launch.watch import Watch
from distlab.runs import short_name


def _endings(watch: Watch) -> list[Ending]:
    ends = []
    for host, job in watch.jobs.items():
        told = {one["rank"]: one for one in watch.ended.get(host, {}).get("ranks", [])}
        for rank in range(job.first_rank, job.first_rank + job.nproc):
            one = told.get(rank, {"status": None, "ending": None, "vanished": False})
            ends.append(Ending(rank, host, one["status"], one["ending"], watch.voice.held(rank), one["vanished"]))
    return ends


def _say_lost(host: str, message: dict) -> str:
    said = f" ({message['said']})" if message["status"] > 0 and message["said"] else ""
    return f"{host} was lost: its agent ended with status {message['status']}{said}. Is the host still up?"


def _error(watch: Watch, ends: list[Ending], late: float | None) -> str | None:
    """The one message that explains a failure, or None."""
    failed = any(not one["ok"] for one in watch.ended.values())
    if late is not None:
        return describe_late(ends, late)
    for host, one in watch.ended.items():
        # Its ranks ended because it did.
        if one.get("lost"):
            return f"{host}: {one['reason']}"
    message = blame(ends, {host: _say_lost(host, one) for host, one in watch.gone.items()})
    if message and (failed or watch.gone):
        return message
    for host, one in watch.ended.items():
        if one.get("reason"):
            return f"{host}: {one['reason']}"
    return "a rank failed without a word: see the logs" if failed or watch.waiting else None


def _how(end: Ending, error: str | None) -> str:
    if end.record:
        return end.record["how"]
    # A launcher terminates the others in the moment in which it sees the first failure.
    if end.status is None or (end.status == -signal.SIGTERM and not (error or "").startswith(f"{end} ")):
        return "stopped"
    return "killed" if end.status < 0 else "left"


def conclude(
    watch: Watch,
    script: Path,
    launcher: str,
    started: float,
    folder: Path,
    command: dict[str, str],
    late: float | None,
) -> RunResult:
    """The result of a run that is over.

    Args:
        started: when it began, on time.monotonic()'s clock.
        late: the seconds that it had, when they were not enough; else None.
    """
    ends = _endings(watch)
    ok = not watch.waiting and not watch.gone and all(one["ok"] for one in watch.ended.values())
    error = None if ok else _error(watch, ends, late)
    ranks = []
    for end in ends:
        job = watch.jobs[end.host]
        how = _how(end, error)
        status = int(how == "stopped") or exit_status(end) or int(how == "raised")
        log = str(watch.voice.log_path(end.rank))
        ranks.append(RankEnd(end.rank, end.host, end.rank - job.first_rank, how, status, log))
    said = watch.ended.values()
    return RunResult(
        script=short_name(script),
        launcher=launcher,
        ok=ok,
        hosts=list(watch.jobs),
        ranks=ranks,
        seconds=time.monotonic() - started,
        folder=folder,
        command=command,
        error=error,
        metrics=sorted((record for one in said for record in one["metrics"]), key=lambda record: record["rank"]),
        stacks={int(rank): trim_stack(text) for one in said for rank, text in one.get("stacks", {}).items()},
        output=watch.voice.lines,
    )


def say_failure(result: RunResult) -> str:
    """Why a run failed, where ranks stood when it was stopped, and where the logs are."""
    parts = [result.error or "failed"]
    for rank, stack in sorted(result.stacks.items()):
        host = next(end.host for end in result.ranks if end.rank == rank)
        parts.append(f"--- rank {rank} on {host} stood here:\n{stack}")
    parts.append(f"logs: {result.folder / 'logs'}")
    return "\n".join(parts)
