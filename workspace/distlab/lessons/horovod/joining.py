"""Ranks that Horovod brought together: who this one is, and its device by its local rank."""

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from distlab.process import ending
from distlab.process.device import Choice, choose, device_id, place
from distlab.process.environment import read_placement
from distlab.process.joining import Rank, note, settle
from distlab.process.share import keep_freed_memory, use_own_cores
from distlab.runs import new_run_name, run_folder, runs_root, script_name

LAUNCHERS = ("horovodrun", "mpirun", "none")
START = "start it with distlab run SCRIPT --launcher horovodrun, with horovodrun or with mpirun"


class HorovodRank(Rank):
    """A rank whose group is Horovod's; `backend` is gloo, mpi or nccl."""

    def gather(self, value: object) -> list:
        """Every rank's value, in rank order, on every rank. All ranks must call it."""
        import horovod.torch as hvd

        return hvd.allgather_object(value, name="gather")


def _timeline_in_run_folder() -> None:
    """Horovod reads HOROVOD_TIMELINE once, at its start; a bare name is meant for the folder of this run."""
    name, folder = os.environ.get("HOROVOD_TIMELINE", ""), run_folder()
    if name.endswith(".json") and not os.path.isabs(name) and folder:
        os.environ["HOROVOD_TIMELINE"] = str(folder / name)


def choose_device(device_ids: list[str], has_nccl: bool, environ: Mapping[str, str] = os.environ) -> Choice:
    """As `device.choose`, but for one thing: a Horovod with NCCL cannot let two ranks share a GPU.

    Args:
        device_ids: one `device_id()` per rank, in rank order.
    """
    choice = choose(device_ids, environ)
    if choice.device_type == "cuda" and choice.backend != "nccl" and has_nccl:
        gpus = len(set(device_ids))
        shared = f"{len(device_ids)} ranks share {gpus} GPU{'s' if gpus > 1 else ''}"
        return Choice("cpu", "gloo", f"on cpu: {shared}, and NCCL wants one for each")
    return choice


@contextmanager
def join() -> Iterator[Rank]:
    """Join all ranks of this job with hvd.init(), pin the device by local rank, leave with hvd.shutdown().

    Raises:
        RuntimeError: Horovod is not built, or the ranks were started in a way that it does not know.
        ValueError: DISTLAB_DEVICE or DISTLAB_BACKEND asks for what is not there.
    """
    at = read_placement()
    ending.watch(at.rank)
    use_own_cores()
    keep_freed_memory()
    try:
        import horovod.torch as hvd
    except ModuleNotFoundError as error:
        if error.name != "horovod":
            raise
        raise RuntimeError("Horovod is not built here: run make horovod; distlab doctor says how far it is") from None
    # Before it begins: Open MPI would end this process, since nobody told it of the others.
    if at.launcher not in LAUNCHERS:
        raise RuntimeError(
            f"{at.launcher} started these {at.world_size} ranks, of which Horovod knows nothing: {START}"
        )
    _timeline_in_run_folder()
    if at.launcher == "none":
        # Alone there is nobody to ask Open MPI for.
        os.environ.update(HOROVOD_CONTROLLER="gloo", HOROVOD_CPU_OPERATIONS="gloo")
    hvd.init()
    # Ranks that each train by themselves would look like one job that went well.
    if (hvd.rank(), hvd.size()) != (at.rank, at.world_size):
        raise RuntimeError(f"Horovod sees {hvd.size()} rank where {at.launcher} started {at.world_size}: {START}")
    card = {
        "device": device_id(at.local_rank),
        "folder": str(run_folder() or runs_root() / new_run_name(script_name())),
    }
    cards = hvd.allgather_object(card, name="cards")
    choice = choose_device([card["device"] for card in cards], bool(hvd.nccl_built()))
    backend = "mpi" if choice.backend == "gloo" and hvd.mpi_enabled() else choice.backend
    reason = choice.reason.replace("over gloo", f"over {backend}")
    device = place(choice, at.local_rank)
    me = HorovodRank(**vars(at), device=device, backend=backend, reason=f"with Horovod {reason}")
    settle(me, cards[0]["folder"])
    try:
        yield me
        # Nobody leaves while another rank still needs it.
        hvd.barrier()
        ending.completed()
    except BaseException as error:
        note(error)
        raise
    hvd.shutdown()
