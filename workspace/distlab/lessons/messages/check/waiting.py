"""Who waits for whose message: from what ranks reported to one sentence.

Reads two kinds of records. 'message' (case, op, peer) was written before a message was on its way,
'stuck' (case, ranks, op, peer, line) by a rank that stands still.
"""

from distlab.checks.result import listed
from distlab.launch import RunResult

AT_ONCE = "send and receive at the same time, with dist.batch_isend_irecv, or with isend and then recv"


def who_waits(result: RunResult) -> str | None:
    """Why ranks stand still, when they wait for messages; None when it was something else."""
    waits = result.last("stuck")
    if not all(record.get("op") for record in waits.values()):
        return None
    for rank, record in waits.items():
        if said := _crossed(result, rank, record):
            return said
    for rank, record in waits.items():
        peer = record["peer"]
        if peer is not None and peer not in waits:
            return (
                f"rank {rank} waits {_where(record)} {_what_for(record)}, but rank {peer} does no more: "
                "all ranks must take the same steps"
            )
    kinds = {_sends(record) for record in waits.values()}
    if len(kinds) != 1 or any(record["peer"] is None for record in waits.values()):
        return None
    first = next(iter(waits.values()))
    pairs = listed([f"rank {rank} for rank {record['peer']}" for rank, record in waits.items()])
    missing = "receives" if kinds == {True} else "sends"
    return f"all {len(waits)} ranks wait in {first['op']} {_where(first)}, {pairs}, and nobody {missing}: {AT_ONCE}"


def _sends(record: dict) -> bool:
    return record["op"].endswith("send")


def _where(record: dict) -> str:
    return f"at line {record['line']}" if "line" in record else "outside the file"


def _what_for(record: dict) -> str:
    peer = record["peer"]
    return f"for rank {peer} to take its message" if _sends(record) else f"for a message from rank {peer}"


def _crossed(result: RunResult, rank: int, record: dict) -> str | None:
    """A rank waits for one that was turned to another."""
    peer = record["peer"]
    other_ends = [
        one["peer"]
        for one in result.records("message")
        if (one["rank"], one["case"]) == (peer, record["case"]) and _sends(one) != _sends(record)
    ]
    if not other_ends or rank in other_ends or None in other_ends:
        return None
    turned = f"receives from rank {other_ends[-1]}" if _sends(record) else f"sends to rank {other_ends[-1]}"
    return (
        f"rank {rank} waits {_where(record)} {_what_for(record)}, but rank {peer} {turned}: "
        "send to the right neighbour, receive from the left one"
    )
