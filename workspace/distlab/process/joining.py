"""A rank's life: joins the others, computes, leaves."""

import atexit
import gc
import multiprocessing
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist

# Imported before any group exists: its functions bind the group of that moment as their default
# and would keep it alive. DistributedDataParallel imports it too.
import torch.distributed.nn

from distlab.process import ending
from distlab.process.device import choose, device_id, place, spread
from distlab.process.environment import Placement, read_placement, read_seconds
from distlab.process.meeting import JoinError, gather_cards, open_store
from distlab.process.share import keep_freed_memory, use_own_cores
from distlab.runs import make_folder, new_run_name, run_folder, runs_root, script_name


@dataclass(frozen=True)
class Rank(Placement):
    """One process of a job.

    `local_rank` counts within the host and picks the GPU; `rank` counts over all hosts and
    picks the samples. `backend` is None outside a group.
    """

    device: torch.device
    backend: str | None
    reason: str

    @property
    def is_main(self) -> bool:
        """True on rank 0 alone: the one that prints and writes shared files."""
        return self.rank == 0

    def devices(self, count: int | None = None) -> list[torch.device]:
        """Devices for replicas in this one process: GPUs, or the main device once for each."""
        return spread(self.device, count)

    @property
    def message_device(self) -> torch.device:
        """Where a tensor must be to be sent to another rank: gloo sends from the CPU only."""
        return self.device if self.backend == "nccl" else torch.device("cpu")

    def print(self, *values: object) -> None:
        """Print from rank 0 only."""
        if self.is_main:
            print(*values, flush=True)

    def gather(self, value: object) -> list[Any]:
        """Every rank's value, in rank order, on every rank. All ranks must call it."""
        if not self.backend:
            return [value]
        values: list[Any] = [None] * self.world_size
        dist.all_gather_object(values, value)
        return values

    def print_in_order(self, *values: object) -> None:
        """Print from every rank, one after the other, through rank 0. All ranks must call it."""
        for line in self.gather(" ".join(map(str, values))):
            self.print(line)


def collective_seconds() -> float:
    """How long one collective may take: DISTLAB_COLLECTIVE_TIMEOUT, 300 s by default."""
    return read_seconds("DISTLAB_COLLECTIVE_TIMEOUT", 300)


def note(error: BaseException) -> None:
    """Record how this rank ends, for the launcher."""
    if isinstance(error, SystemExit):
        ending.left(error.code)
    elif isinstance(error, Exception):
        ending.raised(error)


def _end_group_before_python() -> None:
    """Free the group, and with it gloo's threads, once the script's functions have returned.

    Under load such a thread may still hold a tensor of the last message. If Python ends
    meanwhile, the thread aborts the whole rank (pytorch/pytorch#190489). The threads end with the
    last reference to the group, often a DistributedDataParallel that only the garbage collector frees.
    """
    # A forked rank ends by os._exit, which waits for no thread.
    if multiprocessing.parent_process() is None:
        atexit.unregister(gc.collect)
        atexit.register(gc.collect)


def settle(me: Rank, folder: str) -> None:
    """Use the run's folder, and say from rank 0 where all ranks compute."""
    os.environ["DISTLAB_RUN_DIR"] = folder
    make_folder(Path(folder))
    if me.world_size > 1 or me.device.type == "cuda":
        me.print(f"{me.world_size} rank{'s' if me.world_size > 1 else ''} {me.reason}")


def _as_rank(at: Placement, device: torch.device, backend: str | None, reason: str) -> Rank:
    return Rank(**vars(at), device=device, backend=backend, reason=reason)


@contextmanager
def alone() -> Iterator[Rank]:
    """One process with a device and no group.

    Raises:
        JoinError: it was started as several ranks, each of which would train by itself.
    """
    at = read_placement()
    ending.watch(at.rank)
    if at.world_size > 1:
        raise JoinError(
            f"{os.path.basename(script_name())} is written for one process but was started as {at.world_size} ranks: "
            "use --hosts node1:1, or a script that joins a group such as ddp"
        )
    use_own_cores()
    keep_freed_memory()
    choice = choose([device_id(at.local_rank)])
    me = _as_rank(at, place(choice, at.local_rank), None, f"on {choice.device_type}")
    settle(me, str(run_folder() or runs_root() / new_run_name(script_name())))
    try:
        yield me
    except BaseException as error:
        note(error)
        raise
    ending.completed()


@contextmanager
def group() -> Iterator[Rank]:
    """Join all ranks of this job in a process group; leave it at the end.

    The group is left without a barrier when this rank fails, so that its error is not held back
    by ranks that wait for it.

    Raises:
        JoinError: the rendezvous address is wrong, the port is taken, a rank is claimed twice.
        JoinTimeout: ranks are missing at the deadline (DISTLAB_JOIN_TIMEOUT).
        SettingError: DISTLAB_DEVICE or DISTLAB_BACKEND asks for what is not there.
    """
    at = read_placement()
    ending.watch(at.rank)
    use_own_cores()
    keep_freed_memory()
    store = open_store(at)
    folder = str(run_folder() or runs_root() / new_run_name(script_name()))
    cards = gather_cards(store, at, {"device": device_id(at.local_rank), "folder": folder})
    choice = choose([card["device"] for card in cards])
    device = place(choice, at.local_rank)
    dist.init_process_group(
        choice.backend,
        store=store,
        rank=at.rank,
        world_size=at.world_size,
        timeout=timedelta(seconds=collective_seconds()),
        device_id=device if choice.backend == "nccl" else None,
    )
    me = _as_rank(at, device, choice.backend, choice.reason)
    settle(me, cards[0]["folder"])
    try:
        yield me
        # No rank tears the group down while another still needs it.
        dist.barrier()
        ending.completed()
        _end_group_before_python()
    except BaseException as error:
        note(error)
        raise
    finally:
        if dist.is_initialized():
            dist.destroy_process_group()
