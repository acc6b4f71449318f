"""One attempt at a run: what its hosts say, until all have ended, one has failed, or time is up."""

import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from distlab.agent.job import Job
from distlab.launch.connection import Connection
from distlab.launch.output import RankOutput
from distlab.launch.session import Session

# After the first failure the other hosts have this long to report theirs.
VERDICT_SECONDS = 1.5
# A little longer than agents take: at most 1 s to collect stacks, 2 s to kill.
STACK_SECONDS, STOP_SECONDS = 1.5, 2.5


class Attempt:
    """Jobs that were started on their hosts once, and what the hosts have said so far.

    Attributes:
        ended: the last message of each host whose job has ended, by host.
        gone: what was said of each host whose agent was lost.
        first_failure: when something first went wrong, on time.monotonic()'s clock; None while all is well.
    """

    def __init__(self, jobs: Mapping[str, Job], output: RankOutput, session: Session) -> None:
        self.jobs, self.output, self._session = jobs, output, session
        self.ended: dict[str, dict[str, Any]] = {}
        self.gone: dict[str, dict[str, Any]] = {}
        self.first_failure: float | None = None
        self._stacks_told: set[str] = set()

    @property
    def waiting(self) -> list[str]:
        """Hosts that have not ended."""
        return [host for host in self.jobs if host not in self.ended and host not in self.gone]

    def follow(self, until: float) -> None:
        """Take messages until all hosts have ended, one has failed a moment ago, or time is up."""

        def enough() -> bool:
            failed = self.first_failure
            return not self.waiting or (failed is not None and time.monotonic() > failed + VERDICT_SECONDS)

        self._listen(until, enough)

    def stop(self, connections: Sequence[Connection], stacks: bool) -> None:
        """Stop the job on every host; a host that does not answer is hung up on.

        Args:
            stacks: ask first where each rank stands.
        """
        waiting = [connection for connection in connections if connection.host.name in self.waiting]
        if stacks:
            # All hosts before any is stopped, since ranks fail as soon as a peer is gone.
            for connection in waiting:
                connection.send(do="stacks", id=self.jobs[connection.host.name].id)
            told = time.monotonic() + STACK_SECONDS
            self._listen(told, lambda: self._stacks_told.issuperset(self.waiting))
        for connection in waiting:
            connection.send(do="stop", id=self.jobs[connection.host.name].id)
        self._listen(time.monotonic() + STOP_SECONDS, lambda: not self.waiting)
        for host in [*self.waiting, *(host for host, message in self.ended.items() if message.get("dying"))]:
            self._session.drop(host)

    def _listen(self, until: float, enough: Callable[[], bool]) -> None:
        for message in self._session.messages(until):
            if message:
                self._hear(*message)
            if enough():
                return

    def _hear(self, host: str, message: dict[str, Any]) -> None:
        job = self.jobs.get(host)
        if job is None or message.get("id", job.id) != job.id or host in self.ended:
            return
        event = message["event"]
        if event == "line":
            self.output.hear(host, message["rank"], message["stream"], message["text"])
        elif event == "ended":
            self.ended[host] = message
            if not message["ok"]:
                self._fails()
        elif event == "broken":
            self.ended[host] = {"ok": False, "stopped": False, "reason": message["reason"], "ranks": [], "metrics": []}
            self._fails()
        elif event == "gone":
            self.gone[host] = message
            self._fails()
        elif event == "failing":
            self._fails()
        elif event == "stacks":
            self._stacks_told.add(host)

    def _fails(self) -> None:
        self.first_failure = self.first_failure or time.monotonic()
