"""The ring all-reduce in MPI's words: NumPy arrays, no torch.

mpirun -n 4 python workspace/distlab/scripts/ring_mpi.py
"""

import json
import sys
from pathlib import Path

import numpy as np
from mpi4py import MPI


def exchange(comm: MPI.Comm, outgoing: np.ndarray, incoming: np.ndarray) -> None:
    """Send to the right neighbour and receive from the left, at the same time."""
    right, left = (comm.rank + 1) % comm.size, (comm.rank - 1) % comm.size
    MPI.Request.Waitall([comm.Isend(outgoing, dest=right), comm.Irecv(incoming, source=left)])


def ring_all_reduce(comm: MPI.Comm, vector: np.ndarray) -> None:
    """Sum a vector over all ranks, in place."""
    rank, size, chunks = comm.rank, comm.size, np.array_split(vector, comm.size)
    for step in range(size - 1):
        summed = chunks[(rank - step - 1) % size]
        incoming = np.empty_like(summed)
        exchange(comm, chunks[(rank - step) % size], incoming)
        summed += incoming
    for step in range(size - 1):
        exchange(comm, chunks[(rank - step + 1) % size], chunks[(rank - step) % size])


if __name__ == "__main__":
    vector = np.full(MPI.COMM_WORLD.size, 10.0**MPI.COMM_WORLD.rank)
    ring_all_reduce(MPI.COMM_WORLD, vector)
    held = MPI.COMM_WORLD.gather(vector.tolist(), root=0)
    print(f"rank {MPI.COMM_WORLD.rank} has {vector.tolist()}", flush=True)
    if held and sys.argv[1:]:
        Path(sys.argv[1]).write_text(json.dumps(held))
