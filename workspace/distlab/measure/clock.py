"""How far each rank's clock is from that of rank 0."""

import time

import torch
import torch.distributed as dist

from distlab.process.joining import Rank

# Of a few round trips the shortest has the smallest error.
QUESTIONS = 12


def ahead_of_rank_0(me: Rank) -> float:
    """Seconds by which `process.now` of this rank is ahead of that of rank 0. All ranks must call it.

    Rank 0 asks each rank for its time and assumes that it is that of the middle of the round trip
     (Cristian 1989, Probabilistic clock synchronization). The error is at most half of
    the shortest round trip; ranks leave a barrier further apart than that.
    """
    told = torch.zeros(me.world_size, dtype=torch.float64, device=me.message_device)
    for rank in range(1, me.world_size):
        if me.is_main:
            told[rank] = min(_ask(rank, told.new_zeros(1)) for _ in range(QUESTIONS))[1]
        elif me.rank == rank:
            for _ in range(QUESTIONS):
                _answer(told.new_zeros(1))
    dist.broadcast(told, src=0)
    return told[me.rank].item()


def _ask(rank: int, letter: torch.Tensor) -> tuple[float, float]:
    """Seconds of the round trip, and by how many that rank is ahead."""
    begin = time.perf_counter()
    dist.send(letter, rank)
    dist.recv(letter, rank)
    theirs = letter.item()
    end = time.perf_counter()
    return end - begin, theirs - (begin + end) / 2


def _answer(letter: torch.Tensor) -> None:
    dist.recv(letter, 0)
    letter.cpu()
    letter.fill_(time.perf_counter())
    dist.send(letter, 0)
