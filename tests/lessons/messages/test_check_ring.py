"""The exercise ring: the solution holds, the starter is told where to start, planted mistakes are named."""

import functools

import exercise
import pytest
from distlab.checks import CheckResult, check
from distlab.lessons.messages.check import probe
from distlab.lessons.messages.check.mistakes import BATCH, CHUNKS, GATHER, REDUCE
from distlab.lessons.messages.check.wire import nowhere
from distlab.runs import WORKSPACE
from exercise import assert_named, assert_says, one_line, states

edited = functools.partial(exercise.edited, "ring")
REQUIREMENTS = ["runs", "ring", "waits", "chunks", "reduces", "gathers", "sizes", "worlds"]


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
    called = sorted((record["case"], record["rank"]) for record in solved.run.records("called"))
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


@pytest.mark.parametrize("file", ["exercises/ring.py", "solutions/ring.py"])
def test_file_runs_by_itself_and_shows_each_rank_its_result(warm, file):
    result = warm(WORKSPACE / file)
    ends = {"exercises/ring.py": ", not yet the sum", "solutions/ring.py": " became [1111, 2222, *, 8888], right"}
    for rank in range(4):
        said = result.text(rank)
        assert f"{[place * 10**rank for place in range(1, 9)]} became " in said
        assert_says(said, ends[file])
