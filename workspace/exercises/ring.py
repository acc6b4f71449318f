"""Exercise: an all-reduce made of messages to one neighbour.

run("exercises/ring.py")    # in the notebook: two hosts, two ranks each
check("ring")               # says what is missing, one step at a time

As it stands, no message is sent, and each rank keeps its own numbers. The TODOs are numbered in the
order in which to do them. Use messages only: dist.send, dist.recv, dist.isend, dist.irecv,
dist.batch_isend_irecv.

The algorithm: Patarasuk and Yuan, Bandwidth optimal all-reduce algorithms for clusters of
workstations, Journal of Parallel and Distributed Computing 69 (2009).
"""

import torch
import torch.distributed as dist
from distlab import process
from torch import Tensor


def exchange(outgoing: Tensor, incoming: Tensor) -> None:
    """Send one tensor to the right neighbour and receive one from the left, at the same time.

    The right neighbour of a rank is the next rank, and that of the last rank is rank 0. Every rank
    calls this. When it returns, `incoming` is filled and `outgoing` may be changed again.

    Args:
        outgoing: contiguous; with as many numbers as the right neighbour has room for.
        incoming: contiguous; filled with what the left neighbour sends.
    """
    # TODO 1: this is rank dist.get_rank() of dist.get_world_size(). Who is to its right, and who to its left?
    # Send and receive, and wait until both are done. If every rank sends before it receives, who receives?


def ring_all_reduce(tensor: Tensor) -> None:
    """Sum a tensor over all ranks, in place, with messages to the right neighbour only.

    With n ranks and n chunks it takes n - 1 steps that sum (reduce-scatter) and n - 1 steps that
    hand the sums round (all-gather). Each rank sends 2 (n - 1) / n of the tensor, however many
    ranks there are. Works on the CPU over gloo and on GPUs over NCCL.

    Args:
        tensor: contiguous, of any shape and type of number, the same on every rank. The number of
            elements need not divide by n.
    """
    # TODO 2: cut tensor.view(-1) into as many chunks as there are ranks, of nearly the same size. They are
    # views: who changes a chunk changes the tensor.

    # TODO 3: reduce-scatter. In step s = 0, 1 ... n - 2 rank r sends chunk r - s (modulo n), receives chunk
    # r - s - 1 into new memory and adds it to its own. In the end each rank has one chunk summed over all.

    # TODO 4: all-gather. In n - 1 more steps the summed chunks go round. Which one does rank r send first?


def main() -> None:
    """Sum eight numbers over the ranks. Each digit of a result tells from which rank it came."""
    with process.group() as me:
        # gloo carries messages between CPUs only.
        device = me.device if me.backend == "nccl" else torch.device("cpu")
        own = torch.arange(1, 9, device=device) * 10**me.rank
        tensor, truth = own.clone(), own.clone()
        ring_all_reduce(tensor)
        dist.all_reduce(truth)
        print(f"{own.tolist()} became {tensor.tolist()},", "right" if torch.equal(tensor, truth) else "not yet the sum")


if __name__ == "__main__":
    main()
