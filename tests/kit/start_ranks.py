"""Starts real ranks for tests: forked from a process that has torch imported, so within a second."""

import multiprocessing
import os
import traceback
from collections.abc import Callable
from pathlib import Path

from distlab.ports import free_port

SECONDS = 100

context = multiprocessing.get_context("forkserver")
context.set_forkserver_preload(["torch", "torch._dynamo", "distlab.loop"])


def _be_rank(job: Callable, arguments: tuple, variables: dict[str, str], answers) -> None:
    os.environ.update(variables)
    try:
        answer = ("returned", job(*arguments))
    except BaseException as error:
        answer = ("raised", f"{type(error).__name__}: {error}", traceback.format_exc())
    answers.send(answer)
    answers.close()


def run(world_size: int, job: Callable, *arguments: object, folder: Path, may_raise: bool = False, **variables) -> list:
    """What `job(*arguments)` returns on each rank of a group that it joins itself.

    Args:
        job: a function of an importable module; it calls process.group().
        folder: the run folder of the ranks.
        may_raise: hand back (how, what, traceback) of each rank instead of failing.
    """
    common = {
        "WORLD_SIZE": str(world_size),
        "LOCAL_WORLD_SIZE": str(world_size),
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(free_port()),
        "OMP_NUM_THREADS": "1",
        "TQDM_DISABLE": "1",
        "DISTLAB_RUN_DIR": str(folder),
        "DISTLAB_DEVICE": "cpu",
        **variables,
    }
    started = []
    for rank in range(world_size):
        mine, theirs = context.Pipe(duplex=False)
        own = {**common, "RANK": str(rank), "LOCAL_RANK": str(rank)}
        process = context.Process(target=_be_rank, args=(job, arguments, own, theirs))
        process.start()
        theirs.close()
        started.append((process, mine))
    answers = []
    try:
        for rank, (_, pipe) in enumerate(started):
            assert pipe.poll(SECONDS), f"rank {rank} of {world_size} gave no answer within {SECONDS} s"
            answers.append(pipe.recv())
    finally:
        for process, _ in started:
            process.join(5)
            if process.is_alive():
                process.kill()
                process.join()
    if may_raise:
        return answers
    for rank, answer in enumerate(answers):
        assert answer[0] == "returned", f"rank {rank}: {answer[2]}"
    return [answer[1] for answer in answers]
