"""Live ranks as the notebook holds them: one job under way, and a client that sends it cells."""

import atexit
import logging
import os
import shutil
import threading
import time
import uuid
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any, TypeAlias

from ipyparallel import AsyncResult, Client, DirectView
from ipyparallel.error import TaskAborted

from distlab.errors import DistlabError
from distlab.hosts import Host, HostList, find, parse
from distlab.launch import RunFailed, Session, run
from distlab.ranks.controller import CLIENT, read_connection
from distlab.ranks.remote import describe, evaluate
from distlab.runs import make_folder, runs_root
from distlab.waiting import wait_until

ENGINE = Path(__file__).with_name("engine.py")
START_SECONDS = 90.0
ANSWER_SECONDS = 5.0
# A collective that waits longer than this for a rank fails; until then it cannot be interrupted.
COLLECTIVE_SECONDS = 20.0
LOOK_SECONDS = 0.05
# What a rank printed comes over another connection than its answer, and may come later.
OUTPUT_SECONDS = 2.0
# How long the launcher may take to find out who failed first and to stop the others.
BURIAL_SECONDS = 8.0
ENDED = "the live ranks have ended"

# What is under way on each rank, by rank.
Answers: TypeAlias = dict[int, AsyncResult]

# The controller encrypts and knows its peers by their keys, so unsigned messages are no danger.
logging.getLogger("traitlets").addFilter(lambda record: "Message signing is disabled" not in record.getMessage())


class RanksError(DistlabError, RuntimeError):
    """Live ranks are missing, have died, or failed in a cell; says which rank."""


def _find_hosts(hosts: str | HostList | None) -> list[Host]:
    if isinstance(hosts, str):
        return parse(hosts)
    return list((hosts or find()).hosts)


class LiveRanks:
    """Ranks that stay. A context manager; leaving it ends them.

    Raises:
        RanksError: they did not come up.
    """

    def __init__(self, hosts: str | HostList | None = None) -> None:
        self._hosts = _find_hosts(hosts)
        self.size = sum(host.slots for host in self._hosts)
        self._session = Session()
        self._why: str | None = None
        # The last message to each rank, and how to send it again.
        self._latest: Answers = {}
        self._send_again: dict[int, Callable[[], AsyncResult]] = {}
        # In the folder of runs, which the notebook shares with rank 0's host.
        self._folder = make_folder(runs_root() / f".live-{uuid.uuid4().hex[:8]}").resolve()
        self._job = threading.Thread(target=self._run, name="live ranks", daemon=True)
        atexit.register(self.close)
        try:
            self._job.start()
            self._client = self._connect()
            self.facts: list[dict[str, Any]] = [answer.get(START_SECONDS) for answer in self._ask(describe).values()]
        except BaseException:
            self.close()
            raise
        finally:
            # Nobody needs the keys on disk any more.
            shutil.rmtree(self._folder, ignore_errors=True)

    def __enter__(self) -> "LiveRanks":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _run(self) -> None:
        # Passed on as text: ranks say what is wrong with it, and to parse it here would import torch.
        seconds = os.environ.get("DISTLAB_COLLECTIVE_TIMEOUT") or COLLECTIVE_SECONDS
        try:
            run(
                ENGINE,
                hosts=self._hosts,
                session=self._session,
                timeout=float("inf"),
                env={"DISTLAB_LIVE": str(self._folder), "DISTLAB_COLLECTIVE_TIMEOUT": str(seconds)},
                quiet=True,
            )
            self._why = ENDED
        except RunFailed as failure:
            self._why = failure.result.error or str(failure)
        except Exception as error:
            self._why = str(error)

    def _connect(self) -> Client:
        until = time.monotonic() + START_SECONDS
        found = self._come(until, lambda: read_connection(self._folder, CLIENT))
        if not found:
            raise RanksError("rank 0 left no word in the folder of runs: do all hosts share it?")

        def connect() -> list[Client]:
            # This may time out: when ranks fail to join, the controller ends with them.
            with suppress(TimeoutError):
                return [Client(connection_info=found, timeout=ANSWER_SECONDS)]
            return []

        clients = self._come(until, connect)
        if not clients:
            raise RanksError(f"ipyparallel's controller did not answer within {START_SECONDS:.0f} s")
        (client,) = clients
        try:
            if not self._come(until, lambda: set(client.ids) >= set(range(self.size))):
                names = ", ".join(self.name(rank) for rank in sorted(set(range(self.size)) - set(client.ids)))
                raise RanksError(f"{names} did not come up within {START_SECONDS:.0f} s")
        except BaseException:
            client.close()
            raise
        return client

    def _come(self, until: float, condition: Callable[[], object]) -> Any:
        """What `condition` answers once it is true, or when the time is up; raises when the ranks have died."""

        def look() -> object:
            answer = condition()
            if not answer and not self.alive:
                raise RanksError(self.death)
            return answer

        return wait_until(look, until - time.monotonic(), every=0.02)

    # -- what they are ----------------------------------------------------------------------

    @property
    def alive(self) -> bool:
        """True while all of them are there."""
        return self._job.is_alive() and self._why is None

    @property
    def death(self) -> str:
        """Which rank ended first, and how: a sentence."""
        self._job.join(BURIAL_SECONDS)
        first = (self._why or ENDED).splitlines()[0]
        return first if first.endswith((".", "?")) else f"{first}."

    @property
    def pids(self) -> list[int]:
        """Process ids of the agents that hold them."""
        return list(self._session.pids.values())

    def serves(self, hosts: str | HostList | None) -> bool:
        """True when these are the ranks that `hosts` asks for."""
        return self._hosts == _find_hosts(hosts)

    def host(self, rank: int) -> str:
        """The name of a rank's host."""
        for host in self._hosts:
            if rank < host.slots:
                return host.name
            rank -= host.slots
        raise ValueError(f"no such rank among {self.size}")

    def name(self, rank: int) -> str:
        """As every line of it begins: `node1:0`."""
        return f"{self.host(rank)}:{rank}"

    def ranks_on(self, name: str) -> list[int]:
        """The ranks of a host.

        Raises:
            RanksError: there is no such host.
        """
        found = [rank for rank in range(self.size) if self.host(rank) == name]
        if not found:
            raise RanksError(f"no host {name!r}: there are {', '.join(host.name for host in self._hosts)}")
        return found

    def __repr__(self) -> str:
        first = self.facts[0]
        lines = [f"{self.size} live rank{'s' * (self.size > 1)} {first['reason']}; %%px runs a cell in all of them"]
        for host in self._hosts:
            ranks = self.ranks_on(host.name)
            what = ", ".join(f"rank {rank} on {self.facts[rank]['device']}" for rank in ranks)
            lines.append(f"  {host.name}: {what}")
        return "\n".join(lines)

    # -- what they do -----------------------------------------------------------------------

    def submit(self, code: str, ranks: Sequence[int] | None = None) -> Answers:
        """Send a cell to ranks, all by default; returns at once.

        Raises:
            RanksError: they have died.
        """
        return self._send(ranks, lambda view: view.execute(code, silent=False, block=False))

    def _ask(self, function: Callable[..., Any], *arguments: object) -> Answers:
        return self._send(None, lambda view: view.apply_async(function, *arguments))

    def _send(self, ranks: Sequence[int] | None, send: Callable[[DirectView], AsyncResult]) -> Answers:
        self._require_alive()
        chosen = range(self.size) if ranks is None else ranks
        again = {rank: partial(send, self._client[rank]) for rank in chosen}
        sent = {rank: resend() for rank, resend in again.items()}
        self._latest |= sent
        self._send_again |= again
        return sent

    def earlier(self, ranks: Sequence[int]) -> Answers:
        """What these ranks were sent last."""
        return {rank: self._latest[rank] for rank in ranks if rank in self._latest}

    def _require_alive(self) -> None:
        if not self.alive:
            raise RanksError(f"{self.death} ranks.start() starts all ranks anew; their variables are gone")

    def wait(self, answers: Answers, seconds: float, tell: Callable[[list[int]], None] = lambda _: None) -> list[int]:
        """Wait for the end of what was sent.

        Args:
            tell: called again and again with the ranks that have not ended.

        Returns:
            The ranks that have not ended in time.

        Raises:
            RanksError: a rank has died meanwhile.
        """
        until = time.monotonic() + seconds
        while busy := [rank for rank, answer in answers.items() if not self._answered(answers, rank, answer)]:
            self._require_alive()
            left = until - time.monotonic()
            if left <= 0:
                return busy
            tell(busy)
            answers[busy[0]].wait(min(left, LOOK_SECONDS))
        for answer in answers.values():
            answer.wait_for_output(OUTPUT_SECONDS)
        return []

    def _answered(self, answers: Answers, rank: int, answer: AsyncResult) -> bool:
        if not answer.done():
            return False
        if not isinstance(answer.exception(), TaskAborted):
            return True
        # While a cell fails, its rank drops what is sent to it, so it is sent again.
        answers[rank] = self._latest[rank] = self._send_again[rank]()
        return False

    def interrupt(self) -> None:
        """What Ctrl-C does, in every rank."""
        client = self._client
        for identity in client._engines.values():
            # ipyparallel has no public method for this when engines have no nanny.
            client._send(client._control_stream, "interrupt_request", ident=identity.encode())

    def values(self, expression: str) -> list[Any]:
        """The value of an expression on each rank, as `ranks.values` has it."""
        self._require_alive()
        busy = self.wait(self.earlier(range(self.size)), COLLECTIVE_SECONDS)
        if busy:
            names = ", ".join(map(self.name, busy))
            raise RanksError(f"{names} still at an earlier cell: wait for it, or ranks.stop() and ranks.start()")
        answers = self._ask(evaluate, expression)
        self.wait(answers, float("inf"))
        found = []
        for rank, answer in answers.items():
            value, trouble = answer.get()
            if trouble:
                raise RanksError(f"{self.name(rank)} has no {expression!r}: {trouble}")
            found.append(value)
        return found

    def close(self) -> None:
        """End all of them."""
        atexit.unregister(self.close)
        with suppress(AttributeError):
            self._client.close()
        self._session.close()
        if self._job.is_alive():
            self._job.join(BURIAL_SECONDS)
        self._why = self._why or ENDED
