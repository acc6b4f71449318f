"""Solution: an all-reduce made of messages to one neighbour.

run("solutions/ring.py")                        # in the notebook: two hosts, two ranks each
check("ring", file="solutions/ring.py")         # every requirement holds

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
    rank, world_size = dist.get_rank(), dist.get_world_size()

    right, left = (rank + 1) % world_size, (rank - 1) % world_size
    send = dist.P2POp(dist.isend, outgoing, right)
    receive = dist.P2POp(dist.irecv, incoming, left)
    for message in dist.batch_isend_irecv([send, receive]):
        message.wait()


def ring_all_reduce(tensor: Tensor) -> None:
    """Sum a tensor over all ranks, in place, with messages to the right neighbour only.

    With n ranks and n chunks it takes n - 1 steps that sum (reduce-scatter) and n - 1 steps that
    hand the sums round (all-gather). Each rank sends 2 (n - 1) / n of the tensor, however many
    ranks there are. Works on the CPU over gloo and on GPUs over NCCL.

    Args:
        tensor: contiguous, of any shape and type of number, the same on every rank. The number of
            elements need not divide by n.
    """
    rank, world_size = dist.get_rank(), dist.get_world_size()

    # Not torch.chunk: that one may give fewer chunks than it is asked for.
    chunks = tensor.view(-1).tensor_split(world_size)

    for step in range(world_size - 1):
        outgoing, summed = chunks[(rank - step) % world_size], chunks[(rank - step - 1) % world_size]
        incoming = torch.empty_like(summed)
        exchange(outgoing, incoming)
        summed += incoming

    for step in range(world_size - 1):
        exchange(chunks[(rank - step + 1) % world_size], chunks[(rank - step) % world_size])


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
