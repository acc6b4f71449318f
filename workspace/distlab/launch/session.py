"""The agents of all hosts, kept for the life of this process so that later runs start warm."""

import atexit
import queue
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from distlab.hosts import Host
from distlab.launch.connection import Connection, HostError, unreachable

REMIND_SECONDS = 10.0


class Session:
    """Connections by host. A context manager; leaving it leaves nothing behind."""

    def __init__(self) -> None:
        self._connections: dict[str, Connection] = {}
        self._inbox: queue.Queue[tuple[str, dict[str, Any]]] = queue.Queue()
        self._busy = threading.Lock()

    def __enter__(self) -> "Session":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @contextmanager
    def claimed(self) -> Iterator[None]:
        """For one run at a time: two would take each other's messages.

        Raises:
            HostError: another thread's run is under way.
        """
        if not self._busy.acquire(blocking=False):
            raise HostError("another run is under way in this notebook: wait for its end, or interrupt it")
        try:
            yield
        finally:
            self._busy.release()

    @property
    def pids(self) -> dict[str, int]:
        """Process ids of the agents by host."""
        return {name: connection.pid for name, connection in self._connections.items() if connection.alive}

    def connect(self, hosts: list[Host], seconds: float, tell: Callable[[str], None] = print) -> list[Connection]:
        """Agents of these hosts, started where they are not up yet.

        Args:
            tell: hears now and then who is still missing.

        Raises:
            HostError: a host did not join in time; the message names it.
        """
        for host in hosts:
            known = self._connections.get(host.name)
            if known and not (known.alive and known.serves(host)):
                known.close()
                known = None
            if known is None:
                self._connections[host.name] = Connection(host, self._inbox)
        until, remind = time.monotonic() + seconds, time.monotonic() + REMIND_SECONDS
        wanted = [self._connections[host.name] for host in hosts]
        try:
            while missing := [connection for connection in wanted if not connection.said_hello]:
                dead = next((connection for connection in missing if not connection.alive), None)
                if dead or time.monotonic() > until:
                    lost = dead or missing[0]
                    raise HostError(unreachable(lost.host, None if dead else seconds, lost.last_words()))
                if time.monotonic() > remind:
                    remind += REMIND_SECONDS
                    names = ", ".join(connection.host.name for connection in missing)
                    tell(f"waiting for {names} to join, {until - time.monotonic():.0f} s left")
                time.sleep(0.01)
        except BaseException:
            for connection in missing:
                self._connections.pop(connection.host.name).close(0.5)
            raise
        self._drain()
        return wanted

    def _drain(self) -> None:
        # Late messages of an earlier job are of no use to the next one.
        while not self._inbox.empty():
            self._inbox.get_nowait()

    def warm(self, hosts: list[Host]) -> None:
        """Start the agents and let them import, without waiting for them."""
        for connection in self.connect(hosts, 60.0):
            connection.send(do="warm")

    def messages(self, until: float) -> Iterator[tuple[str, dict[str, Any]] | None]:
        """Messages as they arrive, None now and then while there are none, to the deadline."""
        while (left := until - time.monotonic()) > 0:
            try:
                yield self._inbox.get(timeout=min(left, 0.5))
            except queue.Empty:
                yield None

    def drop(self, name: str) -> None:
        """Hang up on one host at once."""
        if name in self._connections:
            self._connections.pop(name).close(0.2)

    def close(self) -> None:
        """Hang up on all hosts; everything started on them ends."""
        for connection in self._connections.values():
            connection.hang_up()
        while self._connections:
            self._connections.popitem()[1].close()


_default: Session | None = None


def default_session() -> Session:
    """The session of this process, closed when the process ends."""
    global _default
    if _default is None:
        _default = Session()
        atexit.register(_default.close)
    return _default
