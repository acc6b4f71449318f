"""Two simulated hosts give their ranks what two real hosts would give."""

import json
import os

import pytest
from distlab.hosts.host import machine_cores
from running import seen_by

pytestmark = pytest.mark.timeout(90)

NAMES = ("RANK", "LOCAL_RANK", "GROUP_RANK", "LOCAL_WORLD_SIZE", "WORLD_SIZE", "GROUP_WORLD_SIZE")


@pytest.mark.parametrize(
    ("hosts", "layout"),
    [
        ("node1:2,node2:2", [("node1", 0, 0, 2), ("node1", 1, 0, 2), ("node2", 0, 1, 2), ("node2", 1, 1, 2)]),
        ("node1:1,node2:3", [("node1", 0, 0, 1), ("node2", 0, 1, 3), ("node2", 1, 1, 3), ("node2", 2, 1, 3)]),
        ("node2:2,node1:1", [("node2", 0, 0, 2), ("node2", 1, 0, 2), ("node1", 0, 1, 1)]),
        ("node1", [("node1", 0, 0, 1)]),
    ],
)
def test_ranks_are_where_two_real_hosts_would_have_them(warm, hosts, layout):
    result = warm("who", hosts=hosts)
    size, groups = len(layout), len({host for host, *_ in layout})
    for rank, (seen, (host, local_rank, group_rank, local_size)) in enumerate(
        zip(seen_by(result), layout, strict=True)
    ):
        told = [int(seen[name]) for name in NAMES]
        assert told == [rank, local_rank, group_rank, local_size, size, groups]
        assert (seen["host"], seen["rank"], seen["local_rank"], seen["host_index"], seen["world_size"]) == (
            host,
            rank,
            local_rank,
            group_rank,
            size,
        )
        # Every rank put 2^rank into the sum.
        assert seen["sum"] == 2**size - 1
        assert f"{host}:{rank} | {{" in warm.said
    assert [(end.rank, end.host, end.local_rank, end.how, end.status) for end in result.ranks] == [
        (rank, host, local_rank, "completed", 0) for rank, (host, local_rank, *_) in enumerate(layout)
    ]
    assert result.ok and result.hosts == list(dict.fromkeys(host for host, *_ in layout))


def test_the_cores_of_a_host_are_shared_by_its_ranks(warm, monkeypatch):
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    cores = max(1, machine_cores() // 2)
    expected = [max(1, cores // 1)] + [max(1, cores // 3)] * 3
    seen = seen_by(warm("who", hosts="node1:1,node2:3"))
    assert [rank["threads"] for rank in seen] == expected
    assert [rank["omp"] for rank in seen] == [str(count) for count in expected]


def test_threads_can_be_asked_for(warm):
    assert [rank["threads"] for rank in seen_by(warm("who", hosts="node1:1,node2:1", threads=3))] == [3, 3]


def test_threads_that_a_person_exported_are_kept(warm, monkeypatch):
    monkeypatch.setenv("OMP_NUM_THREADS", "3")
    assert [rank["omp"] for rank in seen_by(warm("who", hosts="node1:2"))] == ["3", "3"]
    assert [rank["omp"] for rank in seen_by(warm("who", hosts="node1:2", threads=2))] == ["2", "2"]


def test_settings_are_those_of_the_moment_of_the_call(warm, monkeypatch):
    monkeypatch.setenv("DISTLAB_ASKED_ONCE", "yes")
    first = seen_by(
        warm("who", "--word", "two words", hosts="node1:1,node2:1", env={"DISTLAB_ASKED_HERE": 7}, epochs=1)
    )
    monkeypatch.delenv("DISTLAB_ASKED_ONCE")
    second = seen_by(warm("who", hosts="node1:1,node2:1"))
    for rank in first:
        assert rank["asked"] == {"DISTLAB_ASKED_ONCE": "yes", "DISTLAB_ASKED_HERE": "7"}
        assert rank["arguments"] == ["--word", "two words", "--epochs", "1"]
        assert rank["cwd"] == os.getcwd()
    assert [rank["asked"] for rank in second] == [{}, {}]


def test_the_command_shown_is_the_one_that_a_person_would_type(warm, monkeypatch):
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    result = warm("who", "--word", "two words", hosts="node1:1,node2:3")
    port = seen_by(result)[0]["master"].partition(":")[2]
    threads = max(1, max(1, machine_cores() // 2) // 3)
    assert set(result.command) == {"node1", "node2"}
    assert result.command["node2"].startswith(
        f"DISTLAB_HOST=node2 OMP_NUM_THREADS={threads} torchrun --nnodes 2 --node-rank 1 --nproc-per-node 3 "
        f"--master-addr 127.0.0.1 --master-port {port} "
    )
    assert result.command["node2"].endswith("who.py --word 'two words'")


def test_a_run_keeps_its_result_and_a_log_of_each_rank(warm):
    result = warm("who", hosts="node1:1,node2:1")
    kept = json.loads((result.folder / "run.json").read_text())
    assert kept["ok"] is True and [end["rank"] for end in kept["ranks"]] == [0, 1]
    for end in result.ranks:
        with open(end.log) as log:
            assert log.read().rstrip("\n") == result.text(end.rank)


LATE_FIRST_HOST = """
import time
from distlab import process, report
with process.group() as me:
    report.log(me, "seen")
if me.host == "node1":
    time.sleep(0.5)
"""


def test_records_come_in_rank_order_whichever_host_ends_first(warm, tmp_path):
    script = tmp_path / "late.py"
    script.write_text(LATE_FIRST_HOST)
    assert [record["rank"] for record in warm(script).records("seen")] == [0, 1, 2, 3]
