"""Mistakes that people make in the exercise ring, and what its check says of each."""

from distlab.checks.mistake import Mistake

BATCH = """\
    send = dist.P2POp(dist.isend, outgoing, right)
    receive = dist.P2POp(dist.irecv, incoming, left)
    for message in dist.batch_isend_irecv([send, receive]):
        message.wait()
"""
CHUNKS = "    chunks = tensor.view(-1).tensor_split(world_size)\n"
STEPS = "    for step in range(world_size - 1):\n"
OUTGOING = "chunks[(rank - step) % world_size], chunks[(rank - step - 1) % world_size]\n"
MEMORY = "torch.empty_like(summed)"
REDUCE = f"""\
{STEPS}        outgoing, summed = {OUTGOING}        incoming = {MEMORY}
        exchange(outgoing, incoming)
        summed += incoming
"""
GATHER = f"""\
{STEPS}        exchange(chunks[(rank - step + 1) % world_size], chunks[(rank - step) % world_size])
"""
STAR = """\
    if rank == 0:
        for other in range(1, world_size):
            part = torch.empty_like(tensor)
            dist.recv(part, other)
            tensor += part
        for other in range(1, world_size):
            dist.send(tensor, other)
    else:
        dist.send(tensor, 0)
        dist.recv(tensor, 0)
"""
USE = "        exchange(outgoing, incoming)\n        summed += incoming\n"
INLINE = """\
        sent = dist.isend(outgoing, (rank + 1) % world_size)
        received = dist.irecv(incoming, (rank - 1) % world_size)
        {}
        {}
        {}
        {}
"""
ALL_GATHER = """\
    parts = [None] * world_size
    dist.all_gather_object(parts, chunks[(rank + 1) % world_size])
    for other, part in enumerate(parts):
        chunks[(other + 1) % world_size].copy_(part)
"""
BEHIND_THE_BACK = """\
    from torch.distributed._functional_collectives import all_reduce

    tensor.copy_(all_reduce(tensor, "sum", dist.group.WORLD))
"""
WHOLE_TENSORS = """\
    outgoing, incoming = tensor.clone(), torch.empty_like(tensor)
    for _ in range(world_size - 1):
        exchange(outgoing, incoming)
        tensor += incoming
        outgoing.copy_(incoming)
"""


def returns(value: str) -> tuple[str, str]:
    """The whole ring replaced by a few lines."""
    return f"{CHUNKS}\n{REDUCE}\n{GATHER}", value


MISTAKES = (
    Mistake(
        "all_reduce",
        [returns("    dist.all_reduce(tensor)\n")],
        "ring",
        "rank 0 calls dist.all_reduce at line *, which does the work of this exercise: use messages only",
    ),
    Mistake(
        "all_gather",
        [(GATHER, ALL_GATHER)],
        "ring",
        "rank 0 calls dist.all_gather_object at line *, which does the work of this exercise",
    ),
    Mistake(
        "star",
        [returns(STAR)],
        "ring",
        "all messages go to rank 0 or come from it: a star, in which rank 0 moves 2400 numbers",
    ),
    Mistake(
        "leftwards",
        [("(rank + 1) % world_size, (rank - 1) % world_size", "(rank - 1) % world_size, (rank + 1) % world_size")],
        "ring",
        "rank 0 sent to rank 3 at line *, but its right neighbour is rank 1",
        live=True,
    ),
    Mistake(
        "isend not waited for",
        [(BATCH, "    dist.isend(outgoing, right)\n    dist.recv(incoming, left)\n")],
        "waits",
        "rank 0 never waits for the isend of line *: call wait() on what it returns",
        live=True,
    ),
    Mistake(
        "irecv not waited for",
        [(BATCH, "    dist.irecv(incoming, left)\n    dist.send(outgoing, right)\n")],
        "waits",
        "rank 0 never waits for the irecv of line *: call wait() on what it returns",
    ),
    Mistake(
        "nobody waits",
        [("        message.wait()\n", "        pass\n")],
        "waits",
        "rank 0 never waits for the isend of line *",
    ),
    Mistake(
        "buffer used again",
        [(USE, INLINE.format("outgoing.zero_()", "received.wait()", "summed += incoming", "sent.wait()"))],
        "waits",
        "rank 0 changed the numbers that the isend of line * was still sending: wait() first",
    ),
    Mistake(
        "read before it was there",
        [(USE, INLINE.format("summed += incoming", "sent.wait()", "received.wait()", "pass"))],
        "waits",
        "rank 0 used what irecv was to fill before it was there: call wait() before you read it",
    ),
    Mistake(
        "incoming stays empty",
        [("dist.irecv, incoming, left", "dist.irecv, incoming.clone(), left")],
        "ring",
        "after exchange elements 0 to 99 of incoming on rank 0 hold nothing that was received: "
        "it should be what rank 3 sent",
    ),
    Mistake(
        "all_reduce by another name",
        [returns(BEHIND_THE_BACK)],
        "reduces",
        "the ranks have the sum, but sent no message",
        may_be_open=("chunks",),
    ),
    Mistake(
        "exchange never called",
        [returns("    pass\n")],
        "reduces",
        "ring_all_reduce sends nothing yet, so elements 0 to 399 of rank 0 hold the numbers of rank 0 only: "
        "call exchange in 3 steps",
        may_be_open=("chunks",),
    ),
    Mistake(
        "last sum forgotten",
        [("        summed += incoming\n", "        if step < world_size - 2:\n            summed += incoming\n")],
        "reduces",
        "after 3 steps no chunk of rank 0 is the sum of all 4 ranks: "
        "add what arrives in step s to chunk (rank - s - 1) % n",
    ),
    Mistake(
        "added twice",
        [("summed += incoming", "summed += incoming + incoming")],
        "reduces",
        "in step s = 1 of the reduce-scatter rank 0 sent chunk 3 with the numbers of rank 3 twice: add each chunk",
    ),
    Mistake(
        "added to two chunks",
        [("summed += incoming", "summed += incoming\n        chunks[(rank - step - 2) % world_size].add_(incoming)")],
        "reduces",
        "of the reduce-scatter rank 0 sent numbers of different places added together",
    ),
    Mistake(
        "last chunk handed to another place",
        [(GATHER, GATHER.replace("(rank - step) %", "(rank - step - (step == world_size - 2)) %"))],
        "gathers",
        "elements * of rank 0 hold *: in step s of the all-gather chunk (rank - s) % n arrives",
    ),
    Mistake(
        "whole tensor in each step",
        [returns(WHOLE_TENSORS)],
        "chunks",
        "rank 0 sent 9600 bytes to sum a tensor of 3200 bytes and shape (400,); "
        "in a ring of 4 it is 2 * 3 / 4 of it, 4800 bytes",
        live=True,
    ),
    Mistake(
        "rows for chunks",
        [("tensor.view(-1).tensor_split", "torch.atleast_1d(tensor).tensor_split")],
        "chunks",
        "rank 1 sent 1600 bytes to sum a tensor of 800 bytes and shape (2, 50)",
    ),
    Mistake(
        "not in place",
        [
            (CHUNKS, "    total = tensor.clone()\n    chunks = total.view(-1).tensor_split(world_size)\n"),
            (GATHER, f"{GATHER}    return total\n"),
        ],
        "reduces",
        "rank 0 has the sum in a new tensor that was returned, but its own is unchanged",
    ),
    Mistake(
        "chunks are copies",
        [("tensor.view(-1)", "tensor.flatten().clone()")],
        "reduces",
        "the tensor of rank 0 is unchanged, though messages arrived",
    ),
    Mistake(
        "one step too few",
        [(REDUCE, REDUCE.replace("world_size - 1)", "world_size - 2)"))],
        "reduces",
        "rank 0 sent 5 messages, and after 3 of them not every rank has a chunk summed: "
        "the sum takes 3 steps, and the all-gather 3 more",
    ),
    Mistake(
        "no step that sums",
        [(REDUCE, REDUCE.replace("world_size - 1)", "0)")), (GATHER, GATHER.replace("world_size - 1)", "1)"))],
        "reduces",
        "rank 0 sent 1 message in all: the sum over 4 ranks takes 3 steps",
    ),
    Mistake(
        "replaced instead of added",
        [("summed += incoming", "summed.copy_(incoming)")],
        "reduces",
        "in step s = 1 of the reduce-scatter rank 0 sent chunk 3 with the numbers of rank 3 only: "
        "what arrives is to be added to the rank's own, not to take its place",
        live=True,
    ),
    Mistake(
        "always its own chunk",
        [("outgoing, summed = chunks[(rank - step) %", "outgoing, summed = chunks[rank %")],
        "reduces",
        "in step s = 1 of the reduce-scatter rank 0 sent chunk 0, but in the step before chunk 3 had arrived: "
        "send the chunk to which it was added, (rank - s) % n",
    ),
    Mistake(
        "added to the next chunk",
        [("chunks[(rank - step - 1) % world_size]\n", "chunks[(rank - step - 2) % world_size]\n")],
        "reduces",
        "in step s = 1 of the reduce-scatter rank 0 sent chunk 3 with the numbers of rank 0 only, not the sum of "
        "2 ranks: in the step before chunk 3 had arrived, add it to the chunk of that number, (rank - s - 1) % n",
    ),
    Mistake(
        "added to the chunk that was sent",
        [("chunks[(rank - step - 1) % world_size]\n", "chunks[(rank - step) % world_size]\n")],
        "reduces",
        "in step s = 1 of the reduce-scatter rank 0 sent chunk 3 with the numbers of rank 0 only, not the sum of "
        "2 ranks: in the step before chunk 3 had arrived",
    ),
    Mistake(
        "all-gather missing",
        [(GATHER, "")],
        "gathers",
        "rank 0 has the sum in elements 100 to 199 only: the all-gather is missing, 3 more steps",
        live=True,
    ),
    Mistake(
        "all-gather one step short",
        [(GATHER, GATHER.replace("world_size - 1)", "world_size - 2)"))],
        "gathers",
        "elements 200 to 299 of rank 0 hold the sum of ranks 0, 2 and 3 only, after 2 steps of the all-gather: "
        "it takes 3",
    ),
    Mistake(
        "all-gather begins with the wrong chunk",
        [(GATHER, GATHER.replace("rank - step)", "rank - step - 1)").replace("rank - step + 1", "rank - step"))],
        "gathers",
        "in step s = 0 of the all-gather rank 0 sent chunk 0 with the numbers of rank 0 only: "
        "begin with the chunk that is summed, (rank + 1) % n",
    ),
    Mistake(
        "all-gather always sends the same",
        [(GATHER, GATHER.replace("rank - step + 1", "rank + 1"))],
        "gathers",
        "in step s = 1 of the all-gather rank 0 sent chunk 1, but in the step before chunk 0 had arrived: "
        "send that one, (rank - s + 1) % n",
    ),
    Mistake(
        "all-gather puts chunks elsewhere",
        [(GATHER, GATHER.replace("chunks[(rank - step) %", "chunks[(rank - step + 2) %"))],
        "gathers",
        "in step s = 1 of the all-gather rank 0 sent chunk 0 with the numbers of rank 0 only, "
        "though it had arrived summed: chunk (rank - s) % n arrives, and takes the place of it",
    ),
    Mistake(
        "all-gather adds, too",
        [
            (
                GATHER,
                f"{STEPS}        incoming = torch.empty_like(chunks[(rank - step) % world_size])\n"
                "        exchange(chunks[(rank - step + 1) % world_size], incoming)\n"
                "        chunks[(rank - step) % world_size].add_(incoming)\n",
            )
        ],
        "gathers",
        "rank 0 has the numbers of rank 0 twice in its sum: in the all-gather what arrives is summed already",
    ),
    Mistake(
        "what does not divide is lost",
        [
            (
                CHUNKS,
                "    size = tensor.numel() // world_size\n"
                "    chunks = [tensor.view(-1)[i * size : (i + 1) * size] for i in range(world_size)]\n",
            )
        ],
        "sizes",
        "on 4 ranks with a float64 tensor of shape (43,), elements 40 to 42 of rank 0 hold the numbers of rank 0 only",
        live=True,
    ),
    Mistake(
        "four chunks on any number of ranks",
        [(CHUNKS, CHUNKS.replace("world_size", "4"))],
        "worlds",
        "on 3 ranks with a float64 tensor of shape (300,), elements * of rank 0 hold *, "
        "though 4 ranks had no trouble: use dist.get_world_size()",
        live=True,
    ),
    Mistake(
        "everybody sends first",
        [(BATCH, "    dist.send(outgoing, right)\n    dist.recv(incoming, left)\n")],
        "runs",
        "all 4 ranks wait in send at line {line}, rank 0 for rank 1, rank 1 for rank 2, rank 2 for rank 3 "
        "and rank 3 for rank 0, and nobody receives: send and receive at the same time",
        at="dist.send(outgoing",
        seconds=3,
        live=True,
    ),
    Mistake(
        "everybody sends first, and waits for that",
        [(BATCH, "    dist.isend(outgoing, right).wait()\n    dist.recv(incoming, left)\n")],
        "runs",
        "all 4 ranks wait in isend at line {line}, rank 0 for rank 1, ",
        at="dist.isend(outgoing",
        seconds=3,
    ),
    Mistake(
        "everybody receives first",
        [(BATCH, "    dist.recv(incoming, left)\n    dist.send(outgoing, right)\n")],
        "runs",
        "all 4 ranks wait in recv at line {line}, rank 0 for rank 3, rank 1 for rank 0, rank 2 for rank 1 "
        "and rank 3 for rank 2, and nobody sends: send and receive at the same time",
        at="dist.recv(incoming",
        seconds=3,
    ),
    Mistake(
        "receives from the right",
        [(BATCH, "    sent = dist.isend(outgoing, right)\n    dist.recv(incoming, right)\n    sent.wait()\n")],
        "runs",
        "rank 0 waits at line {line} for a message from rank 1, but rank 1 sends to rank 2: "
        "send to the right neighbour, receive from the left one",
        at="dist.recv(incoming",
        seconds=3,
        live=True,
    ),
    Mistake(
        "no way round",
        [("(rank + 1) % world_size, (rank - 1) % world_size", "rank + 1, rank - 1")],
        "runs",
        "ValueError: rank * has no neighbour *: ranks go from 0 to 3, and round again",
        at="dist.P2POp(",
        seconds=3,
    ),
    Mistake(
        "room for another chunk",
        [(MEMORY, "torch.empty_like(outgoing)")],
        "runs",
        "ValueError: rank * sends * numbers of float64, but rank * has room for * numbers of float64 "
        "(on 4 ranks with a float64 tensor of shape (43,))",
        at="in dist.batch_isend_irecv",
        seconds=3,
        live=True,
    ),
    Mistake(
        "room of another dtype",
        [(MEMORY, "torch.empty(len(summed))")],
        "runs",
        "ValueError: rank * sends 100 numbers of float64, but rank * has room for 100 numbers of float32 "
        "(on 4 ranks with a float64 tensor of shape (400,))",
        at="in dist.batch_isend_irecv",
        seconds=3,
    ),
    Mistake(
        "too few chunks",
        [("tensor_split", "chunk")],
        "runs",
        "IndexError: tuple index out of range (on 4 ranks with a float64 tensor of shape (3, 3)); "
        "torch.chunk may give fewer chunks than it is asked for, tensor_split gives as many",
        seconds=3,
    ),
    Mistake(
        "not flattened",
        [("tensor.view(-1).tensor_split", "tensor.tensor_split")],
        "runs",
        "(on 4 ranks with a float64 tensor of shape ())",
        at="chunks = tensor",
        seconds=3,
    ),
    Mistake(
        "four ranks for ever",
        [
            (
                "    rank, world_size = dist.get_rank(), dist.get_world_size()\n\n    right",
                "    rank, world_size = dist.get_rank(), 4\n\n    right",
            )
        ],
        "runs",
        "ValueError: rank * has no neighbour *: ranks go from 0 to 2, and round again "
        "(on 3 ranks with a float64 tensor of shape (300,)); "
        "4 ranks had no trouble: take their number from dist.get_world_size()",
        seconds=3,
    ),
    Mistake(
        "one rank takes a step less",
        [(GATHER, GATHER.replace("world_size - 1)", "world_size - 1 - (rank == 2))"))],
        "runs",
        "rank 1 waits at line {line} for rank 2 to take its message, but rank 2 does no more: "
        "all ranks must take the same steps (on 4 ranks with a float64 tensor of shape (400,))",
        at="message.wait()",
        seconds=3,
        live=True,
    ),
    Mistake(
        "one rank never comes back",
        [(GATHER, f"{GATHER}    while rank == 2:\n        pass\n")],
        "runs",
        "mine.py: rank 2 waited at line *, while ranks 0, 1 and 3 had finished",
        seconds=3,
        live=True,
    ),
    Mistake(
        "one rank comes too late",
        [(REDUCE, f"    while rank == 2:\n        pass\n{REDUCE}")],
        "runs",
        "ranks 0, 1 and 3 waited at line *, message.wait(), while rank 2 waited at line *",
        seconds=3,
    ),
    Mistake(
        "fails when it is read",
        [("def exchange(", "ranks = dist.get_world_size()\n\n\ndef exchange(")],
        "runs",
        "mine.py, line {line}, every rank: ValueError: Default process group has not been initialized",
        at="ranks = dist",
        seconds=3,
        live=True,
    ),
    Mistake(
        "function renamed",
        [("def ring_all_reduce(", "def ring("), ("        ring_all_reduce(", "        ring(")],
        "runs",
        "mine.py has no function ring_all_reduce(tensor)",
        seconds=3,
        live=True,
    ),
)
