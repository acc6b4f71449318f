"""ipyparallel's controller, which the notebook and the live ranks meet at. Rank 0 forks it."""

import json
import logging
import os
import socket
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psutil

from distlab.parent import end_with_parent
from distlab.waiting import wait_until

ENGINES, CLIENT = "ipcontroller-engine.json", "ipcontroller-client.json"
# It logs only that it cannot go on.
SILENT = logging.CRITICAL
START_SECONDS = 30.0
# A rank counts as there after two heartbeats; the default of 3 s between them is meant for hundreds of ranks.
HEARTBEAT_MS = 500


def own_address() -> str:
    """The IPv4 address at which this host's peers find it: that of the interface chosen for gloo."""
    interface = os.environ.get("GLOO_SOCKET_IFNAME", "lo")
    for own in psutil.net_if_addrs().get(interface, []):
        if own.family == socket.AF_INET:
            return own.address
    return "127.0.0.1"


def serve(folder: Path, address: str, parent: int) -> None:
    """Serve in this process, encrypted, on one address; ends with the process that forked it.

    Args:
        folder: where the two files with keys are written, readable by their owner alone.
    """
    end_with_parent(parent=parent)
    from ipyparallel.controller.app import IPController
    from traitlets.config import Config

    config = Config()
    config.ProfileDir.location = str(folder)
    config.IPController.ip = config.IPController.location = address
    # One process instead of seven is enough for so few messages.
    config.IPController.use_threads = True
    config.IPController.broadcast_scheduler_depth = 0
    config.IPController.db_class = "NoDB"
    # CURVE encrypts and knows its peers by their keys, so that messages need no signature.
    config.IPController.enable_curve = True
    config.IPController.log_level = SILENT
    config.HeartMonitor.period = HEARTBEAT_MS
    controller = IPController.instance(config=config)
    controller.initialize([])
    controller.start()


def read_connection(folder: Path, name: str) -> dict[str, Any] | None:
    """How to reach the controller, or None while it has not written that yet.

    Args:
        name: ENGINES or CLIENT, each with keys of its own.
    """
    try:
        connection: dict[str, Any] = json.loads((folder / "security" / name).read_text())
        return connection
    except (FileNotFoundError, ValueError):
        # Not there yet, or only half written.
        return None


def wait_for_connection(folder: Path, alive: Callable[[], bool]) -> dict[str, Any]:
    """How engines reach the controller, once it has written that.

    Args:
        alive: whether it still runs.

    Raises:
        RuntimeError: it ended, or did not write in time.
    """

    def written() -> dict[str, Any] | None:
        found = read_connection(folder, ENGINES)
        if found is None and not alive():
            raise RuntimeError("ipyparallel's controller ended at once: see the log of rank 0")
        return found

    if found := wait_until(written, START_SECONDS, every=0.02):
        return found
    raise RuntimeError(f"ipyparallel's controller did not start within {START_SECONDS:.0f} s: is the host busy?")
