"""The exercise ring: the solution holds, the starter is told where to start, planted mistakes are named."""

import functools
import subprocess
import sys
import time

import exercise
import pytest
from distlab.checks import CheckResult, check
from distlab.lessons.messages.check import probe
from distlab.lessons.messages.check.wire import nowhere
from distlab.runs import WORKSPACE
from exercise import assert_named, assert_says, line_of, one_line, states

edited = functools.partial(exercise.edited, "ring")
REQUIREMENTS = ["runs", "ring", "waits", "chunks", "reduces", "gathers", "sizes", "worlds"]

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


@pytest.fixture(scope="module")
def solved() -> CheckResult:
    return check("ring", file="solutions/ring.py")


def test_solution_holds(solved):
    assert states(solved) == dict.fromkeys(REQUIREMENTS, "holds")
    assert str(solved).endswith("\n\nAll 8 hold: this exercise is done.")
    # Not one of the calls was left out, on any rank that takes part in it.
    plan = solved.run.last("plan")[0]["cases"]
    assert {(case["function"], case["ranks"]) for case in plan} == {
        ("exchange", 4),
        *(("ring_all_reduce", ranks) for ranks in (1, 2, 3, 4)),
    }
    called = sorted((one["case"], one["rank"]) for one in solved.run.records("called"))
    assert called == [(index, rank) for index, case in enumerate(plan) for rank in range(case["ranks"])]


def test_starter_is_told_where_to_start(capsys):
    result = check("ring")
    assert states(result) == dict.fromkeys(REQUIREMENTS, "open") | {"runs": "holds", "ring": "broken"}
    said = capsys.readouterr().out
    assert max(map(len, said.splitlines())) <= 100
    assert one_line(said).endswith(
        "No rank sends anything: start with TODO 1, "
        "where exchange sends one message to the right and takes one from the left."
    )


MISTAKES = {
    "all_reduce": (
        [returns("    dist.all_reduce(tensor)\n")],
        "ring",
        "rank 0 calls dist.all_reduce at line *, which does the work of this exercise: use messages only",
    ),
    "all_gather": (
        [(GATHER, ALL_GATHER)],
        "ring",
        "rank 0 calls dist.all_gather_object at line *, which does the work of this exercise",
    ),
    "star": (
        [returns(STAR)],
        "ring",
        "all messages go to rank 0 or come from it: a star, in which rank 0 moves 2400 numbers",
    ),
    "leftwards": (
        [("(rank + 1) % world_size, (rank - 1) % world_size", "(rank - 1) % world_size, (rank + 1) % world_size")],
        "ring",
        "rank 0 sent to rank 3 at line *, but its right neighbour is rank 1",
    ),
    "isend not waited for": (
        [(BATCH, "    dist.isend(outgoing, right)\n    dist.recv(incoming, left)\n")],
        "waits",
        "rank 0 never waits for the isend of line *: call wait() on what it returns",
    ),
    "irecv not waited for": (
        [(BATCH, "    dist.irecv(incoming, left)\n    dist.send(outgoing, right)\n")],
        "waits",
        "rank 0 never waits for the irecv of line *: call wait() on what it returns",
    ),
    "nobody waits": (
        [("        message.wait()\n", "        pass\n")],
        "waits",
        "rank 0 never waits for the isend of line *",
    ),
    "buffer used again": (
        [(USE, INLINE.format("outgoing.zero_()", "received.wait()", "summed += incoming", "sent.wait()"))],
        "waits",
        "rank 0 changed the numbers that the isend of line * was still sending: wait() first",
    ),
    "read before it was there": (
        [(USE, INLINE.format("summed += incoming", "sent.wait()", "received.wait()", "pass"))],
        "waits",
        "rank 0 used what irecv was to fill before it was there: call wait() before you read it",
    ),
    "incoming stays empty": (
        [("dist.irecv, incoming, left", "dist.irecv, incoming.clone(), left")],
        "ring",
        "after exchange elements 0 to 99 of incoming on rank 0 hold nothing that was received: "
        "it should be what rank 3 sent",
    ),
    "all_reduce by another name": (
        [returns(BEHIND_THE_BACK)],
        "reduces",
        "the ranks have the sum, but sent no message",
    ),
    "exchange never called": (
        [returns("    pass\n")],
        "reduces",
        "ring_all_reduce sends nothing yet, so elements 0 to 399 of rank 0 hold the numbers of rank 0 only: "
        "call exchange in 3 steps",
    ),
    "last sum forgotten": (
        [("        summed += incoming\n", "        if step < world_size - 2:\n            summed += incoming\n")],
        "reduces",
        "after 3 steps no chunk of rank 0 is the sum of all 4 ranks: "
        "add what arrives in step s to chunk (rank - s - 1) % n",
    ),
    "added twice": (
        [("summed += incoming", "summed += incoming + incoming")],
        "reduces",
        "in step s = 1 of the reduce-scatter rank 0 sent chunk 3 with the numbers of rank 3 twice: add each chunk",
    ),
    "added to two chunks": (
        [("summed += incoming", "summed += incoming\n        chunks[(rank - step - 2) % world_size].add_(incoming)")],
        "reduces",
        "of the reduce-scatter rank 0 sent numbers of different places added together",
    ),
    "last chunk handed to another place": (
        [(GATHER, GATHER.replace("(rank - step) %", "(rank - step - (step == world_size - 2)) %"))],
        "gathers",
        "elements * of rank 0 hold *: in step s of the all-gather chunk (rank - s) % n arrives",
    ),
    "whole tensor in each step": (
        [returns(WHOLE_TENSORS)],
        "chunks",
        "rank 0 sent 9600 bytes to sum a tensor of 3200 bytes and shape (400,); "
        "in a ring of 4 it is 2 * 3 / 4 of it, 4800 bytes",
    ),
    "rows for chunks": (
        [("tensor.view(-1).tensor_split", "torch.atleast_1d(tensor).tensor_split")],
        "chunks",
        "rank 1 sent 1600 bytes to sum a tensor of 800 bytes and shape (2, 50)",
    ),
    "not in place": (
        [
            (CHUNKS, "    total = tensor.clone()\n    chunks = total.view(-1).tensor_split(world_size)\n"),
            (GATHER, f"{GATHER}    return total\n"),
        ],
        "reduces",
        "rank 0 has the sum in a new tensor that was returned, but its own is unchanged",
    ),
    "chunks are copies": (
        [("tensor.view(-1)", "tensor.flatten().clone()")],
        "reduces",
        "the tensor of rank 0 is unchanged, though messages arrived",
    ),
    "one step too few": (
        [(REDUCE, REDUCE.replace("world_size - 1)", "world_size - 2)"))],
        "reduces",
        "rank 0 sent 5 messages, and after 3 of them not every rank has a chunk summed: "
        "the sum takes 3 steps, and the all-gather 3 more",
    ),
    "no step that sums": (
        [(REDUCE, REDUCE.replace("world_size - 1)", "0)")), (GATHER, GATHER.replace("world_size - 1)", "1)"))],
        "reduces",
        "rank 0 sent 1 message in all: the sum over 4 ranks takes 3 steps",
    ),
    "replaced instead of added": (
        [("summed += incoming", "summed.copy_(incoming)")],
        "reduces",
        "in step s = 1 of the reduce-scatter rank 0 sent chunk 3 with the numbers of rank 3 only: "
        "what arrives is to be added to the rank's own, not to take its place",
    ),
    "always its own chunk": (
        [("outgoing, summed = chunks[(rank - step) %", "outgoing, summed = chunks[rank %")],
        "reduces",
        "in step s = 1 of the reduce-scatter rank 0 sent chunk 0, but in the step before chunk 3 had arrived: "
        "send the chunk to which it was added, (rank - s) % n",
    ),
    "added to the next chunk": (
        [("chunks[(rank - step - 1) % world_size]\n", "chunks[(rank - step - 2) % world_size]\n")],
        "reduces",
        "in step s = 1 of the reduce-scatter rank 0 sent chunk 3 with the numbers of rank 0 only, not the sum of "
        "2 ranks: in the step before chunk 3 had arrived, add it to the chunk of that number, (rank - s - 1) % n",
    ),
    "added to the chunk that was sent": (
        [("chunks[(rank - step - 1) % world_size]\n", "chunks[(rank - step) % world_size]\n")],
        "reduces",
        "in step s = 1 of the reduce-scatter rank 0 sent chunk 3 with the numbers of rank 0 only, not the sum of "
        "2 ranks: in the step before chunk 3 had arrived",
    ),
    "all-gather missing": (
        [(GATHER, "")],
        "gathers",
        "rank 0 has the sum in elements 100 to 199 only: the all-gather is missing, 3 more steps",
    ),
    "all-gather one step short": (
        [(GATHER, GATHER.replace("world_size - 1)", "world_size - 2)"))],
        "gathers",
        "elements 200 to 299 of rank 0 hold the sum of ranks 0, 2 and 3 only, after 2 steps of the all-gather: "
        "it takes 3",
    ),
    "all-gather begins with the wrong chunk": (
        [(GATHER, GATHER.replace("rank - step)", "rank - step - 1)").replace("rank - step + 1", "rank - step"))],
        "gathers",
        "in step s = 0 of the all-gather rank 0 sent chunk 0 with the numbers of rank 0 only: "
        "begin with the chunk that is summed, (rank + 1) % n",
    ),
    "all-gather always sends the same": (
        [(GATHER, GATHER.replace("rank - step + 1", "rank + 1"))],
        "gathers",
        "in step s = 1 of the all-gather rank 0 sent chunk 1, but in the step before chunk 0 had arrived: "
        "send that one, (rank - s + 1) % n",
    ),
    "all-gather puts chunks elsewhere": (
        [(GATHER, GATHER.replace("chunks[(rank - step) %", "chunks[(rank - step + 2) %"))],
        "gathers",
        "in step s = 1 of the all-gather rank 0 sent chunk 0 with the numbers of rank 0 only, "
        "though it had arrived summed: chunk (rank - s) % n arrives, and takes the place of it",
    ),
    "all-gather adds, too": (
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
    "what does not divide is lost": (
        [
            (
                CHUNKS,
                "    size = tensor.numel() // world_size\n"
                "    chunks = [tensor.view(-1)[i * size : (i + 1) * size] for i in range(world_size)]\n",
            )
        ],
        "sizes",
        "on 4 ranks with a float64 tensor of shape (43,), elements 40 to 42 of rank 0 hold the numbers of rank 0 only",
    ),
    "four chunks on any number of ranks": (
        [(CHUNKS, CHUNKS.replace("world_size", "4"))],
        "worlds",
        "on 3 ranks with a float64 tensor of shape (300,), elements * of rank 0 hold *, "
        "though 4 ranks had no trouble: use dist.get_world_size()",
    ),
}


@pytest.mark.parametrize("mistake", MISTAKES)
def test_planted_mistake_is_named_first(mistake, tmp_path):
    edits, requirement, phrase = MISTAKES[mistake]
    may_be_open = set(REQUIREMENTS[REQUIREMENTS.index(requirement) + 1 :])
    if requirement == "reduces":
        # Chunks of what nobody sends cannot be judged.
        may_be_open.add("chunks")
    assert_named(check("ring", file=edited(tmp_path, *edits)), requirement, phrase, may_be_open)


BROKEN_OFF = {
    "everybody sends first": (
        [(BATCH, "    dist.send(outgoing, right)\n    dist.recv(incoming, left)\n")],
        "all 4 ranks wait in send at line {line}, rank 0 for rank 1, rank 1 for rank 2, rank 2 for rank 3 "
        "and rank 3 for rank 0, and nobody receives: send and receive at the same time",
        "dist.send(outgoing",
    ),
    "everybody sends first, and waits for that": (
        [(BATCH, "    dist.isend(outgoing, right).wait()\n    dist.recv(incoming, left)\n")],
        "all 4 ranks wait in isend at line {line}, rank 0 for rank 1, ",
        "dist.isend(outgoing",
    ),
    "everybody receives first": (
        [(BATCH, "    dist.recv(incoming, left)\n    dist.send(outgoing, right)\n")],
        "all 4 ranks wait in recv at line {line}, rank 0 for rank 3, rank 1 for rank 0, rank 2 for rank 1 "
        "and rank 3 for rank 2, and nobody sends: send and receive at the same time",
        "dist.recv(incoming",
    ),
    "receives from the right": (
        [(BATCH, "    sent = dist.isend(outgoing, right)\n    dist.recv(incoming, right)\n    sent.wait()\n")],
        "rank 0 waits at line {line} for a message from rank 1, but rank 1 sends to rank 2: "
        "send to the right neighbour, receive from the left one",
        "dist.recv(incoming",
    ),
    "no way round": (
        [("(rank + 1) % world_size, (rank - 1) % world_size", "rank + 1, rank - 1")],
        "ValueError: rank * has no neighbour *: ranks go from 0 to 3, and round again",
        "dist.P2POp(",
    ),
    "room for another chunk": (
        [(MEMORY, "torch.empty_like(outgoing)")],
        "ValueError: rank * sends * numbers of float64, but rank * has room for * numbers of float64 "
        "(on 4 ranks with a float64 tensor of shape (43,))",
        "in dist.batch_isend_irecv",
    ),
    "room of another dtype": (
        [(MEMORY, "torch.empty(len(summed))")],
        "ValueError: rank * sends 100 numbers of float64, but rank * has room for 100 numbers of float32 "
        "(on 4 ranks with a float64 tensor of shape (400,))",
        "in dist.batch_isend_irecv",
    ),
    "too few chunks": (
        [("tensor_split", "chunk")],
        "IndexError: tuple index out of range (on 4 ranks with a float64 tensor of shape (3, 3)); "
        "torch.chunk may give fewer chunks than it is asked for, tensor_split gives as many",
        None,
    ),
    "not flattened": (
        [("tensor.view(-1).tensor_split", "tensor.tensor_split")],
        "(on 4 ranks with a float64 tensor of shape ())",
        "chunks = tensor",
    ),
    "four ranks for ever": (
        [
            (
                "    rank, world_size = dist.get_rank(), dist.get_world_size()\n\n    right",
                "    rank, world_size = dist.get_rank(), 4\n\n    right",
            )
        ],
        "ValueError: rank * has no neighbour *: ranks go from 0 to 2, and round again "
        "(on 3 ranks with a float64 tensor of shape (300,)); "
        "4 ranks had no trouble: take their number from dist.get_world_size()",
        None,
    ),
    "one rank takes a step less": (
        [(GATHER, GATHER.replace("world_size - 1)", "world_size - 1 - (rank == 2))"))],
        "rank 1 waits at line {line} for rank 2 to take its message, but rank 2 does no more: "
        "all ranks must take the same steps (on 4 ranks with a float64 tensor of shape (400,))",
        "message.wait()",
    ),
    "one rank never comes back": (
        [(GATHER, f"{GATHER}    while rank == 2:\n        pass\n")],
        "mine.py: rank 2 waited at line *, while ranks 0, 1 and 3 had finished",
        None,
    ),
    "one rank comes too late": (
        [(REDUCE, f"    while rank == 2:\n        pass\n{REDUCE}")],
        "ranks 0, 1 and 3 waited at line *, message.wait(), while rank 2 waited at line *",
        None,
    ),
    "fails when it is read": (
        [("def exchange(", "ranks = dist.get_world_size()\n\n\ndef exchange(")],
        "mine.py, line {line}, every rank: ValueError: Default process group has not been initialized",
        "ranks = dist",
    ),
    "function renamed": (
        [("def ring_all_reduce(", "def ring("), ("        ring_all_reduce(", "        ring(")],
        "mine.py has no function ring_all_reduce(tensor)",
        None,
    ),
}


@pytest.mark.parametrize("fault", BROKEN_OFF)
def test_file_that_does_not_run_to_its_end(fault, tmp_path):
    edits, phrase, code = BROKEN_OFF[fault]
    file = edited(tmp_path, *edits)
    started = time.monotonic()
    result = check("ring", file=file, timeout=3)
    assert time.monotonic() - started < 20
    assert_named(result, "runs", phrase.format(line=code and line_of(file, code)), may_be_open=REQUIREMENTS)


OTHERWISE = REDUCE.replace("rank - step)", "rank - step + 2)").replace("rank - step - 1)", "rank - step + 1)")
RIGHT = {
    "isend, then recv": [
        (BATCH, "    sent = dist.isend(outgoing, right)\n    dist.recv(incoming, left)\n    sent.wait()\n"),
    ],
    "irecv, then send": [
        (BATCH, "    coming = irecv(tensor=incoming, src=left)\n    dist.send(outgoing, right)\n    coming.wait()\n"),
        ("from torch import Tensor\n", "from torch import Tensor\nfrom torch.distributed import irecv\n"),
    ],
    "even ranks send first": [
        (
            BATCH,
            "    turns = [(dist.send, outgoing, right), (dist.recv, incoming, left)]\n"
            "    for act, numbers, peer in turns if rank % 2 == 0 else turns[::-1]:\n"
            "        act(numbers, peer)\n",
        ),
    ],
    "other chunks, counted otherwise": [
        (
            CHUNKS,
            "    size = -(-tensor.numel() // world_size)\n"
            "    chunks = [tensor.view(-1)[i * size : (i + 1) * size] for i in range(world_size)][::-1]\n",
        ),
        (REDUCE, OTHERWISE),
        (
            GATHER,
            GATHER.replace("- step + 1)", "- step + 3)").replace("- step)", "- step + 2)") + "    return tensor\n",
        ),
    ],
    "environment": [
        (
            "    rank, world_size = dist.get_rank(), dist.get_world_size()\n\n    right",
            "    rank, world_size = int(os.environ['RANK']), int(os.environ['WORLD_SIZE'])\n\n    right",
        ),
        ("import torch\n", "import os\n\nimport torch\n"),
    ],
}


@pytest.mark.parametrize("way", RIGHT)
def test_other_right_ways_hold(way, tmp_path):
    result = check("ring", file=edited(tmp_path, *RIGHT[way]))
    assert result.ok, result.mistakes


@pytest.mark.parametrize("hosts", ["node1:1,node2:1", "node1:3", "node1:3,node2:2"])
def test_any_number_of_ranks_can_check(hosts, tmp_path):
    assert check("ring", file="solutions/ring.py", hosts=hosts).ok
    lost = check("ring", file=edited(tmp_path, (GATHER, "")), hosts=hosts)
    assert_named(lost, "gathers", "the all-gather is missing", may_be_open=["sizes", "worlds"])


@pytest.mark.parametrize("dtype", ["float64", "int64"])
@pytest.mark.parametrize("ranks", range(2, probe.MOST_RANKS + 1))
def test_numbers_tell_where_they_are_from(ranks, dtype):
    """Sums of so many ranks are exact, and what is out of place is never taken for what belongs there."""
    case = {"ranks": ranks, "shape": [100 * ranks], "dtype": dtype}
    own = [probe.numbers_of(rank, case) for rank in range(ranks)]
    total = sum(own)
    everyone = [1] * ranks
    assert total.max() < 2**53
    assert probe.held(total, ranks) == [[0, 100 * ranks - 1, everyone]]
    assert probe.held(own[1], ranks) == [[0, 100 * ranks - 1, [int(rank == 1) for rank in range(ranks)]]]
    assert probe.held(total.roll(100), ranks) == [[0, 100 * ranks - 1, "other"]]
    assert probe.content(total[100:], ranks) == {"start": 100, "holds": everyone}
    assert probe.content(own[0] + 2 * own[1], ranks)["holds"][:2] == [1, 2]
    assert probe.content(total[100:200] + total[:100], ranks)["holds"] == "other"
    assert probe.held(total.clone().fill_(nowhere(total)) + own[0], ranks)[0][2] == "nothing"


def test_kernel_stays_light():
    code = "import sys, distlab.lessons.messages.check.requirements; assert 'torch' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)


@pytest.mark.parametrize("file", ["exercises/ring.py", "solutions/ring.py"])
def test_file_runs_by_itself_and_shows_each_rank_its_result(warm, file):
    result = warm(WORKSPACE / file)
    ends = {"exercises/ring.py": ", not yet the sum", "solutions/ring.py": " became [1111, 2222, *, 8888], right"}
    for rank in range(4):
        said = result.text(rank)
        assert f"{[place * 10**rank for place in range(1, 9)]} became " in said
        assert_says(said, ends[file])
