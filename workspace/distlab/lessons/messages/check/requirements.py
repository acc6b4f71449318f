"""What makes the exercise ring right, in the order in which one would mend it."""

import math
from dataclasses import dataclass

from distlab.checks.engine import Observed, Open, Requirements
from distlab.checks.result import listed, plural
from distlab.lessons.messages.check.waiting import who_waits

# Of each element of a dtype.
BYTES = {"float64": 8, "int64": 8}


@dataclass(frozen=True)
class Call:
    """One call on all its ranks: how it was made, and what each rank reported, in rank order."""

    case: dict
    records: list[dict]
    messages: list[list[dict]]

    @property
    def n(self) -> int:
        """Number of ranks."""
        return self.case["ranks"]

    @property
    def elements(self) -> int:
        """Of the tensor."""
        return math.prod(self.case["shape"])

    @property
    def right(self) -> bool:
        """True when each rank ends with the sum."""
        return all(whole(record["held"], self.n) for record in self.records)

    def sent(self, rank: int) -> list[dict]:
        """Messages that a rank sent."""
        return [message for message in self.messages[rank] if message["op"].endswith("send")]

    @property
    def fault(self) -> str:
        """The first place that has not the sum: `elements 0 to 99 of rank 2 hold the numbers of rank 2 only`."""
        for rank, record in enumerate(self.records):
            for first, last, found in record["held"]:
                if found != [1] * self.n:
                    return f"{places(first, last)} of rank {rank} hold{'s' * (first == last)} {whose(found)}"
        raise ValueError("this call is right")

    def __str__(self) -> str:
        return _case(self.case)


def _case(case: dict) -> str:
    ranks = "one rank" if case["ranks"] == 1 else f"{case['ranks']} ranks"
    return f"on {ranks} with a {case['dtype']} tensor of shape {tuple(case['shape'])}"


def whole(held: list[list], n: int) -> bool:
    """True when every place has the sum over n ranks."""
    return all(found == [1] * n for _, _, found in held)


def places(first: int, last: int) -> str:
    """`element 3`, `elements 100 to 199`."""
    return f"element {first}" if first == last else f"elements {first} to {last}"


def whose(found: list[int] | str) -> str:
    """Whose numbers are in it."""
    if found == "nothing":
        return "nothing that was received"
    if isinstance(found, str):
        return "numbers that do not belong there"
    ranks = [rank for rank, times in enumerate(found) if times]
    often = max(found)
    if often > 1:
        return f"the numbers of rank {found.index(often)} {'twice' if often == 2 else f'{often} times'}"
    return f"the sum of {plural('rank', ranks)} only" if len(ranks) > 1 else f"the numbers of rank {ranks[0]} only"


def _calls(observed: Observed) -> list[Call]:
    """The calls that were made, in order: after one that was wrong there are no more."""
    plan = observed.first("plan")["cases"]
    records, messages = observed.result.records("called"), observed.result.records("message")
    made = 1 + max(record["case"] for record in records)
    return [
        Call(
            case,
            sorted((record for record in records if record["case"] == index), key=lambda record: record["rank"]),
            [
                [message for message in messages if (message["case"], message["rank"]) == (index, rank)]
                for rank in range(case["ranks"])
            ],
        )
        for index, case in enumerate(plan[:made])
    ]


REQUIREMENTS = Requirements()


@REQUIREMENTS.add()
def runs(observed: Observed) -> str | None:
    """the file runs to its end on every rank"""
    if observed.trouble is None:
        return None
    said = who_waits(observed.result) or observed.trouble
    plan = observed.each("plan")
    met = [
        record["case"]
        for event in ("raised", "stuck", "message")
        for record in observed.result.records(event)
        if "case" in record
    ]
    if plan and met:
        case, full = plan[0]["cases"][max(met)], plan[0]["cases"][0]["ranks"]
        if case["function"] == "ring_all_reduce":
            said += f" ({_case(case)})"
        if case["ranks"] < full:
            said += f"; {full} ranks had no trouble: take their number from dist.get_world_size()"
    # torch.chunk makes 3 chunks of 9 elements when it is asked for 4.
    if "tuple index out of range" in said:
        said += "; torch.chunk may give fewer chunks than it is asked for, tensor_split gives as many"
    return said


@REQUIREMENTS.add(needs=("runs",))
def ring(observed: Observed) -> str | None:
    """TODO 1: each rank sends to its right neighbour and receives from its left one"""
    calls = _calls(observed)
    exchange = calls[0]
    for call in calls[:2]:
        for record in call.records:
            for collective in record["collectives"]:
                return (
                    f"rank {record['rank']} calls dist.{collective['name']} at line {collective.get('line')}, "
                    "which does the work of this exercise: use messages only, dist.isend and dist.irecv"
                )
    sent = [rank for rank in range(exchange.n) if exchange.sent(rank)]
    if not sent:
        return (
            "no rank sends anything: start with TODO 1, "
            "where exchange sends one message to the right and takes one from the left"
        )
    for call in calls[:2]:
        if fault := _neighbours(call):
            return fault
    for rank, record in enumerate(exchange.records):
        left = (rank - 1) % exchange.n
        if record["loose"]:
            continue
        for start, last, found in record["held"]:
            if found != [int(other == left) for other in range(exchange.n)]:
                return (
                    f"after exchange {places(start, last)} of incoming on rank {rank} hold {whose(found)}: "
                    f"it should be what rank {left} sent"
                )
    return None


def _neighbours(call: Call) -> str | None:
    n = call.n
    messages = [message for own in call.messages for message in own]
    ends = [{message["rank"], message["peer"]} for message in messages]
    strangers = [message for message in messages if not _is_neighbour(message, n)]
    if strangers and n > 2 and all(0 in pair for pair in ends):
        share = sum(message["elements"] for message in call.messages[0])
        return (
            f"all messages go to rank 0 or come from it: a star, in which rank 0 moves {share} numbers, "
            "more with each rank that joins; in a ring each rank sends to its right neighbour only"
        )
    for message in strangers:
        rank, peer, sends = message["rank"], message["peer"], message["op"].endswith("send")
        side, where = ("right", (rank + 1) % n) if sends else ("left", (rank - 1) % n)
        does = f"sent to rank {peer}" if sends else f"received from rank {peer}"
        return f"rank {rank} {does} at line {message.get('line')}, but its {side} neighbour is rank {where}"
    return None


def _is_neighbour(message: dict, n: int) -> bool:
    step = 1 if message["op"].endswith("send") else -1
    # Whoever takes a message from anybody can only get the left neighbour's.
    return message["peer"] in (None, (message["rank"] + step) % n)


@REQUIREMENTS.add(needs=("ring",))
def waits(observed: Observed) -> str | None:
    """TODO 1: what is on its way is waited for"""
    calls = _calls(observed)
    for record in [record for call in calls[:2] for record in call.records]:
        rank = record["rank"]
        for message in record["loose"]:
            at = f"the {message['op']} of line {message.get('line')}"
            return f"rank {rank} never waits for {at}: call wait() on what it returns before you go on"
        for message in record["changed"]:
            return (
                f"rank {rank} changed the numbers that the isend of line {message.get('line')} was still sending: "
                "wait() first, and receive into other memory"
            )
    for call in calls[:2]:
        for rank, record in enumerate(call.records):
            early = [run for run in record["held"] if run[2] == "nothing"]
            early += [message for message in call.sent(rank) if message["holds"] == "nothing" and message["elements"]]
            if early:
                return f"rank {rank} used what irecv was to fill before it was there: call wait() before you read it"
    return None


@REQUIREMENTS.add(needs=("ring", "waits"))
def chunks(observed: Observed) -> str | None:
    """TODO 2: each rank sends 2 (n - 1) / n of the tensor, in chunks"""
    calls = _calls(observed)
    first = calls[1]
    if not any(first.sent(rank) for rank in range(first.n)):
        raise Open("ring_all_reduce sends nothing yet")
    n = first.n
    for call in calls[1:]:
        if call.n < n or call.elements < 10 * n:
            continue
        size = BYTES[call.case["dtype"]]
        most = 2 * (n - 1) * math.ceil(call.elements / n) * size
        for rank in range(n):
            sent = sum(message["elements"] for message in call.sent(rank)) * size
            if sent > most:
                return (
                    f"rank {rank} sent {sent} bytes to sum a tensor of {call.elements * size} bytes and shape "
                    f"{tuple(call.case['shape'])}; in a ring of {n} it is 2 * {n - 1} / {n} of it, {most} bytes: "
                    f"cut tensor.view(-1) into {n} chunks, and send one in each step"
                )
    return None


@REQUIREMENTS.add(needs=("ring", "waits"))
def reduces(observed: Observed) -> str | None:
    """TODO 3: after n - 1 steps every chunk is summed, each on one rank"""
    first = _calls(observed)[1]
    n = first.n
    steps = [len(first.sent(rank)) for rank in range(n)]
    if not any(steps):
        return (
            f"ring_all_reduce sends nothing yet, so {first.fault}: call exchange in {n - 1} steps, and add what arrives"
            if not first.right
            else "the ranks have the sum, but sent no message: make it of messages with exchange"
        )
    if first.right:
        return None
    if fault := _in_place(first):
        return fault
    for rank, count in enumerate(steps):
        if count < n - 1:
            many = f"{count} message{'s' * (count != 1)}"
            return f"rank {rank} sent {many} in all: the sum over {n} ranks takes {n - 1} steps"
    states = [record["halfway"] or record["held"] for record in first.records]
    if all(any(found == [1] * n for _, _, found in state) for state in states):
        return None
    for rank, count in enumerate(steps):
        if count not in (n - 1, 2 * (n - 1)):
            return (
                f"rank {rank} sent {count} messages, and after {n - 1} of them not every rank has a chunk summed: "
                f"the sum takes {n - 1} steps, and the all-gather {n - 1} more"
            )
    for step in range(1, n - 1):
        for rank in range(n):
            if fault := _passed_on(first, step, rank):
                return fault
    for rank, state in enumerate(states):
        if not any(found == [1] * n for _, _, found in state):
            return (
                f"after {n - 1} steps no chunk of rank {rank} is the sum of all {n} ranks: "
                "add what arrives in step s to chunk (rank - s - 1) % n"
            )
    return None


def _in_place(call: Call) -> str | None:
    for rank, record in enumerate(call.records):
        own = [int(other == rank) for other in range(call.n)]
        if all(found == own for _, _, found in record["held"]):
            returned = record["returned"]
            return (
                f"rank {rank} has the sum in a new tensor that was returned, but its own is unchanged: "
                "write into views of tensor"
                if returned is not None and whole(returned, call.n)
                else f"the tensor of rank {rank} is unchanged, though messages arrived: add them to views of tensor"
            )
    return None


def _chunk(call: Call, message: dict) -> str:
    """`chunk 2`, or from which element on."""
    number, rest = divmod(message["start"], call.elements // call.n)
    return f"what begins at element {message['start']}" if rest else f"chunk {number}"


def _passed_on(call: Call, step: int, rank: int) -> str | None:
    """In reduce-scatter each rank sends the chunk that has just arrived, with its own numbers added."""
    sent, arrived = call.sent(rank)[step], call.sent((rank - 1) % call.n)[step - 1]
    found = sent["holds"]
    does = f"in step s = {step} of the reduce-scatter rank {rank} sent"
    if found == "other":
        return (
            f"{does} numbers of different places added together: "
            "what arrives in step s is chunk (rank - s - 1) % n, add it to that one"
        )
    if isinstance(found, str) or arrived["start"] is None:
        return None
    does, came = f"{does} {_chunk(call, sent)}", f"{_chunk(call, arrived)} had arrived"
    if sent["start"] != arrived["start"]:
        return f"{does}, but in the step before {came}: send the chunk to which it was added, (rank - s) % n"
    ranks = [other for other, times in enumerate(found) if times]
    if max(found) != 1:
        return f"{does} with {whose(found)}: add each chunk that arrives once"
    if len(ranks) <= 1 and ranks != [rank]:
        return f"{does} with {whose(found)}: what arrives is to be added to the rank's own, not to take its place"
    if len(ranks) != step + 1:
        return (
            f"{does} with {whose(found)}, not the sum of {step + 1} ranks: in the step before {came}, "
            "add it to the chunk of that number, (rank - s - 1) % n"
        )
    return None


@REQUIREMENTS.add(needs=("reduces",))
def gathers(observed: Observed) -> str | None:
    """TODO 4: every rank ends with the whole sum, in the tensor itself"""
    first = _calls(observed)[1]
    if first.right:
        return None
    n = first.n
    for rank, record in enumerate(first.records):
        found = [run for run in record["held"] if run[2] == [1] * n]
        more = len(first.sent(rank)) - (n - 1)
        if more <= 0:
            return (
                f"rank {rank} has the sum in {_spots(found)} only: the all-gather is missing, "
                f"{n - 1} more steps in which the summed chunks go round"
            )
        if more < n - 1:
            return f"{first.fault}, after {more} step{'s' * (more != 1)} of the all-gather: it takes {n - 1}"
    for step in range(n - 1):
        for rank in range(n):
            if fault := _handed_on(first, step, rank):
                return fault
    for rank, record in enumerate(first.records):
        for _, _, found in record["held"]:
            if isinstance(found, list) and max(found) > 1:
                return _added(whose(found), rank)
    return f"{first.fault}: in step s of the all-gather chunk (rank - s) % n arrives, and takes the place of it"


def _handed_on(call: Call, step: int, rank: int) -> str | None:
    """In all-gather each rank sends the chunk that it has summed, and then what has just arrived."""
    n = call.n
    sent, found = call.sent(rank)[n - 1 + step], call.sent(rank)[n - 1 + step]["holds"]
    if isinstance(found, list) and max(found) > 1:
        return _added(whose(found), rank)
    does = f"in step s = {step} of the all-gather rank {rank} sent"
    arrived = call.sent((rank - 1) % n)[n - 2 + step]
    if step and None not in (sent["start"], arrived["start"]) and sent["start"] != arrived["start"]:
        return (
            f"{does} {_chunk(call, sent)}, but in the step before {_chunk(call, arrived)} had arrived: "
            "send that one, (rank - s + 1) % n"
        )
    if found == [1] * n or found == "nothing":
        return None
    if not isinstance(found, list):
        return f"{does} {whose(found)}: chunk (rank - s) % n arrives, and takes the place of it"
    does = f"{does} {_chunk(call, sent)} with {whose(found)}"
    if not step:
        return f"{does}: begin with the chunk that is summed, (rank + 1) % n"
    return f"{does}, though it had arrived summed: chunk (rank - s) % n arrives, and takes the place of it"


def _added(what: str, rank: int) -> str:
    return (
        f"rank {rank} has {what} in its sum: in the all-gather what arrives is summed already, "
        "so it takes the place of what was there and is not added"
    )


def _spots(runs: list[list]) -> str:
    return listed([places(first, last) for first, last, _ in runs])


@REQUIREMENTS.add(needs=("gathers",))
def sizes(observed: Observed) -> str | None:
    """any number of elements works, also fewer than there are ranks"""
    calls = _calls(observed)
    first = calls[1]
    for call in calls[1:]:
        if call.n == first.n and not call.right:
            return (
                f"{call}, {call.fault}: chunks may differ by one element or have none, "
                "as those of torch.tensor_split do"
            )
    return None


@REQUIREMENTS.add(needs=("sizes",))
def worlds(observed: Observed) -> str | None:
    """any number of ranks works, also a single one"""
    calls = _calls(observed)
    first = calls[1]
    for call in calls[1:]:
        if call.n < first.n and not call.right:
            return f"{call}, {call.fault}, though {first.n} ranks had no trouble: use dist.get_world_size()"
    return None
