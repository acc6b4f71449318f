"""How a run ended: what its hosts and ranks left behind, as one result and one message."""

import signal
import time
from pathlib import Path
from typing import Any

from distlab.launch.attempt import Attempt
from distlab.launch.result import RankEnd, RunResult
from distlab.launch.verdict import Ending, blame, describe_late, exit_status, trim_stack
from distlab.runs import short_name


def _endings(attempt: Attempt) -> list[Ending]:
    ends = []
    for host, job in attempt.jobs.items():
        told = {end["rank"]: end for end in attempt.ended.get(host, {}).get("ranks", [])}
        for rank in range(job.first_rank, job.first_rank + job.nproc):
            end = told.get(rank, {"status": None, "ending": None, "vanished": False})
            ends.append(
                Ending(rank, host, end["status"], end["ending"] or {}, attempt.output.held(rank), end["vanished"])
            )
    return ends


def _say_lost(host: str, message: dict[str, Any]) -> str:
    said = f" ({message['said']})" if message["status"] > 0 and message["said"] else ""
    return f"{host} was lost: its agent ended with status {message['status']}{said}. Is the host still up?"


def _error(attempt: Attempt, ends: list[Ending], late: float | None) -> str | None:
    """The one message that explains a failure, or None."""
    failed = any(not message["ok"] for message in attempt.ended.values())
    if late is not None:
        return describe_late(ends, late)
    for host, message in attempt.ended.items():
        # Ranks end when their launcher is killed, so none of them is to blame.
        if message.get("lost"):
            return f"{host}: {message['reason']}"
    blamed = blame(ends, {host: _say_lost(host, message) for host, message in attempt.gone.items()})
    if blamed and (failed or attempt.gone):
        return blamed
    for host, message in attempt.ended.items():
        if message.get("reason"):
            return f"{host}: {message['reason']}"
    return "a rank failed without a word: see the logs" if failed or attempt.waiting else None


def _how(end: Ending, error: str | None) -> str:
    if end.record:
        return str(end.record["how"])
    # SIGTERM mostly comes from the launcher, which stops the other ranks when it sees the first failure.
    if end.status is None or (end.status == -signal.SIGTERM and not (error or "").startswith(f"{end} ")):
        return "stopped"
    return "killed" if end.status < 0 else "left"


def conclude(
    attempt: Attempt,
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
    ends = _endings(attempt)
    said = attempt.ended.values()
    ok = not attempt.waiting and not attempt.gone and all(message["ok"] for message in said)
    error = None if ok else _error(attempt, ends, late)
    ranks = []
    for end in ends:
        job = attempt.jobs[end.host]
        how = _how(end, error)
        status = int(how == "stopped") or exit_status(end) or int(how == "raised")
        log = str(attempt.output.log_path(end.rank))
        ranks.append(RankEnd(end.rank, end.host, end.rank - job.first_rank, how, status, log))
    records = [record for message in said for record in message["metrics"]]
    return RunResult(
        script=short_name(script),
        launcher=launcher,
        ok=ok,
        hosts=list(attempt.jobs),
        ranks=ranks,
        seconds=time.monotonic() - started,
        folder=folder,
        command=command,
        error=error,
        metrics=sorted(records, key=lambda record: record["rank"]),
        stacks={int(rank): trim_stack(text) for message in said for rank, text in message.get("stacks", {}).items()},
        output=attempt.output.lines,
    )


def say_failure(result: RunResult) -> str:
    """Why a run failed, where ranks stood when it was stopped, and where the logs are."""
    parts = [result.error or "failed"]
    for rank, stack in sorted(result.stacks.items()):
        host = next(end.host for end in result.ranks if end.rank == rank)
        parts.append(f"--- rank {rank} on {host} stood here:\n{stack}")
    parts.append(f"logs: {result.folder / 'logs'}")
    return "\n".join(parts)
