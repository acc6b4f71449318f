"""The ring all-reduce in MPI's words: no torch, no process group, NumPy arrays.

mpirun -n 4 python workspace/distlab/scripts/ring_mpi.py
"""

import argparse
import json
from pathlib import Path

import numpy as np
from mpi4py import MPI


def exchange(comm: MPI.Comm, outgoing: np.ndarray, incoming: np.ndarray) -> None:
    """Send to the right neighbour and receive from the left, at the same time."""
    right, left = (comm.rank + 1) % comm.size, (comm.rank - 1) % comm.size
    messages = [comm.Isend(outgoing, dest=right), comm.Irecv(incoming, source=left)]
    MPI.Request.Waitall(messages)


def ring_all_reduce(comm: MPI.Comm, vector: np.ndarray) -> None:
    """Sum a vector over all ranks, in place."""
    chunks = np.array_split(vector, comm.size)
    for step in range(comm.size - 1):
        outgoing, summed = (chunks[(comm.rank - step - late) % comm.size] for late in (0, 1))
        incoming = np.empty_like(summed)
        exchange(comm, outgoing, incoming)
        summed += incoming
    for step in range(comm.size - 1):
        outgoing, incoming = (chunks[(comm.rank - step + early) % comm.size] for early in (1, 0))
        exchange(comm, outgoing, incoming)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, help="write what every rank has, as JSON")
    args = parser.parse_args()
    comm = MPI.COMM_WORLD
    vector = np.full(comm.size, 10.0**comm.rank)
    ring_all_reduce(comm, vector)
    checked = np.full(comm.size, 10.0**comm.rank)
    comm.Allreduce(MPI.IN_PLACE, checked)
    rows = comm.gather((vector.tolist(), checked.tolist()), root=0)
    if comm.rank == 0:
        for rank, (held, _) in enumerate(rows):
            print(f"rank {rank} of {comm.size} has {held}")
        if args.out:
            args.out.write_text(json.dumps(rows))


if __name__ == "__main__":
    main()
