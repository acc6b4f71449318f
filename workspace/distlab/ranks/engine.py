"""What each live rank runs: it joins the others, then serves cells until it is stopped.

`ranks.start()` starts this like any script. Its one variable, DISTLAB_LIVE, is the folder in which
rank 0's controller leaves word of how to reach it.
"""

import json
import multiprocessing
import os
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist

from distlab import loop, process
from distlab.ranks.controller import SILENT, own_address, serve, wait_for_connection


def _serve_cells(me: process.Rank, connection: dict[str, Any]) -> None:
    from ipyparallel.engine.app import IPEngine
    from traitlets.config import Config

    # In the folder that the agent removes however the rank ends.
    profile = Path(os.environ["DISTLAB_RECORDS"]) / f"profile{me.rank}"
    profile.mkdir()
    config = Config()
    config.ProfileDir.location = str(profile)
    config.IPEngine.id = me.rank
    config.IPEngine.log_level = SILENT
    # The nanny passes signals on and tells of a death, which the agent does here.
    config.IPEngine.enable_nanny = False
    names = {"me": me, "torch": torch, "dist": dist}
    engine = IPEngine.instance(config=config, connection_info_env=json.dumps(connection), user_ns=names)
    engine.initialize([])
    engine.start()


def _fork_controller(folder: Path) -> BaseProcess:
    # A fork copies no threads and no GPU's state, so it comes before this rank has any.
    fork = multiprocessing.get_context("fork")
    controller = fork.Process(target=serve, args=[folder, own_address(), os.getpid()])
    controller.start()
    return controller


def main() -> None:
    """Serve cells until the notebook hangs up."""
    controller: BaseProcess | None = None
    connection: dict[str, Any] = {}
    if process.read_placement().rank == 0:
        folder = Path(os.environ["DISTLAB_LIVE"])
        controller = _fork_controller(folder)
        connection = wait_for_connection(folder, controller.is_alive)
    try:
        with process.group() as me:
            _serve_cells(me, loop.Collectives().broadcast(connection))
            raise SystemExit("this rank was told to leave, and live ranks end together")
    finally:
        if controller:
            controller.kill()


if __name__ == "__main__":
    main()
