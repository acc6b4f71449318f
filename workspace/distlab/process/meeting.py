"""How ranks find each other: one store, a deadline, and a line on stderr while they wait."""

import json
import os
import socket
import sys
import threading
import time
from concurrent.futures import Future
from contextlib import suppress
from datetime import timedelta
from typing import Any

import torch.distributed as dist

from distlab.errors import DistlabError
from distlab.ports import PortError, listen
from distlab.process.environment import Placement, read_seconds

SECONDS_BETWEEN_NOTICES = 10.0


class JoinError(DistlabError, RuntimeError):
    """This rank cannot join the others; says why."""


class JoinTimeout(DistlabError, TimeoutError):
    """Ranks were missing at the deadline; says which."""


def join_seconds() -> float:
    """How long a rank waits for the others: DISTLAB_JOIN_TIMEOUT, 60 s by default."""
    return read_seconds("DISTLAB_JOIN_TIMEOUT", 60)


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def _reach(address: str, port: int, me: Placement, until: float) -> None:
    """Wait until something listens on the master's port; say so while it does not."""
    next_notice = time.monotonic() + SECONDS_BETWEEN_NOTICES
    while True:
        try:
            socket.create_connection((address, port), timeout=2).close()
            return
        except socket.gaierror as error:
            raise JoinError(
                f"rank {me.rank} on {me.host} cannot resolve MASTER_ADDR={address!r} ({error.strerror}): "
                "are both hosts on one network? Try an IP address"
            ) from None
        except OSError:
            left = until - time.monotonic()
            if left <= 0:
                raise JoinTimeout(
                    f"rank {me.rank} on {me.host} found nobody on {address}:{port} within "
                    f"{join_seconds():.0f} s: is rank 0 started there, and is MASTER_PORT={port} on every rank?"
                ) from None
            if time.monotonic() > next_notice:
                next_notice += SECONDS_BETWEEN_NOTICES
                _say(f"rank {me.rank} on {me.host} waits for rank 0 at {address}:{port}, {left:.0f} s left")
        time.sleep(0.2)


def _ask(address: str, port: int, serves: bool, seconds: float) -> dist.Store:
    """The store at this address, served here or not.

    Raises:
        TimeoutError: nobody answered as a store does.
        RuntimeError, DistError: torch's, when the address is taken or the connection fails.
    """
    answer: Future[dist.Store] = Future()
    limit = timedelta(seconds=seconds)

    def ask() -> None:
        try:
            answer.set_result(dist.TCPStore(address, port, None, serves, timeout=limit, wait_for_workers=False))
        except Exception as error:
            answer.set_exception(error)

    # In a thread, since the store's own timeout does not cover a server that accepts and stays silent.
    threading.Thread(target=ask, daemon=True).start()
    return answer.result(seconds)


def _require_free(port: int, me: Placement) -> None:
    try:
        listen("", port, others=False)[0].close()
    except PortError as error:
        raise JoinError(
            f"rank 0 on {me.host} cannot listen on port {port}: {error}. "
            "Set MASTER_PORT to another number on every rank"
        ) from None


def open_store(me: Placement) -> dist.Store:
    """The key-value store that all ranks of this job share, at MASTER_ADDR:MASTER_PORT.

    Raises:
        JoinError: the address does not resolve, the port is taken, or what listens there is no store.
        JoinTimeout: rank 0 did not show up in time.
    """
    seconds = join_seconds()
    if me.world_size == 1 and "MASTER_ADDR" not in os.environ:
        # `python ddp.py` alone: no other process has to find this store.
        return dist.HashStore()
    address, port = os.environ.get("MASTER_ADDR"), os.environ.get("MASTER_PORT", "")
    if not address or not port.isdecimal() or not 0 < int(port) < 65536:
        raise JoinError(
            f"MASTER_ADDR={address!r} and MASTER_PORT={port!r} do not say where rank 0 is: "
            "set both, or start with distlab run or torchrun"
        )
    agent_has_it = os.environ.get("TORCHELASTIC_USE_AGENT_STORE") == "True"
    serves = me.rank == 0 and not agent_has_it
    if not serves:
        _reach(address, int(port), me, time.monotonic() + seconds)
    try:
        store = _ask(address, int(port), serves, seconds)
    except (dist.DistError, RuntimeError, TimeoutError) as error:
        if serves and not isinstance(error, TimeoutError):
            _require_free(int(port), me)
            raise
        raise JoinError(
            f"rank {me.rank} on {me.host} does not find the ranks' store at {address}:{port}: "
            "is something else there, or has rank 0 ended? Set MASTER_PORT to another number on every rank"
        ) from None
    attempt = os.environ.get("TORCHELASTIC_RESTART_COUNT", "0")
    return dist.PrefixStore(f"distlab/{attempt}", store)


def gather_cards(store: dist.Store, me: Placement, card: dict[str, Any]) -> list[dict[str, Any]]:
    """All ranks' cards, in rank order, on every rank. A card is what a rank tells the others before they have a group.

    Raises:
        JoinError: two processes claim one rank.
        JoinTimeout: ranks are missing at the deadline; it names them.
    """
    seconds = join_seconds()
    if store.add(f"claimed/{me.rank}", 1) > 1:
        raise JoinError(f"two processes say they are rank {me.rank}; this one is on {me.host}: give each its own RANK")
    store.set(f"card/{me.rank}", json.dumps(card))
    until = time.monotonic() + seconds
    next_notice = time.monotonic() + SECONDS_BETWEEN_NOTICES
    missing = set(range(me.world_size))
    while missing:
        missing = {rank for rank in missing if not store.check([f"card/{rank}"])}
        if not missing:
            break
        left = until - time.monotonic()
        names = ", ".join(map(str, sorted(missing)))
        if left <= 0:
            raise JoinTimeout(
                f"rank {me.rank} on {me.host}: rank {names} of {me.world_size} did not join within {seconds:.0f} s. "
                "Is each started, with the same WORLD_SIZE, MASTER_ADDR and MASTER_PORT?"
            )
        if me.rank == min(set(range(me.world_size)) - missing) and time.monotonic() > next_notice:
            next_notice += SECONDS_BETWEEN_NOTICES
            _say(f"waiting for rank {names} of {me.world_size}, {left:.0f} s left")
        with suppress(dist.DistStoreError):
            store.wait([f"card/{min(missing)}"], timedelta(seconds=min(1.0, left)))
    return [json.loads(store.get(f"card/{rank}")) for rank in range(me.world_size)]


def keep_until_all_have_read(store: dist.Store, me: Placement) -> None:
    """Wait on rank 0, which may be the one that serves the store, until no rank needs it any more.

    Raises:
        DistStoreError: a rank did not come in time.
    """
    store.add(f"has read/{me.rank}", 1)
    if me.rank == 0:
        store.wait([f"has read/{rank}" for rank in range(me.world_size)], timedelta(seconds=join_seconds()))
