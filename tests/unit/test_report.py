"""Records of ranks: what is written, what is read back."""

import json

import numpy as np
import pytest
import torch
from distlab import process, report


def rank(number, host="node1"):
    return process.Rank(number, 12, 0, 1, 0, host, "none", torch.device("cpu"), None, "")


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.setenv("DISTLAB_RUN_DIR", str(tmp_path / "run"))
    return tmp_path / "run"


def test_one_json_line_per_record_in_a_file_per_rank(folder):
    report.log(rank(1, "node2"), "epoch", epoch=1, loss=torch.tensor(0.5), shape=(2, 3), path=folder)
    (line,) = (folder / "metrics" / "rank1.jsonl").read_text().splitlines()
    record = json.loads(line)
    assert record.pop("time") > 1.7e9
    assert record == {
        "rank": 1,
        "host": "node2",
        "event": "epoch",
        "epoch": 1,
        "loss": 0.5,
        "shape": [2, 3],
        "path": str(folder),
    }


def test_values_become_plain(folder):
    report.log(
        rank(0),
        "mix",
        tensor=torch.tensor([1, 2]),
        array=np.array([[1.5]]),
        scalar=np.float32(0.25),
        count=np.int64(7),
        nested={"loss": torch.tensor(float("inf")), 3: [float("nan"), None, True]},
        nan=float("nan"),
        text="µ",
    )
    (record,) = report.read(folder)
    assert record["tensor"] == [1, 2] and record["array"] == [[1.5]]
    assert record["scalar"] == 0.25 and record["count"] == 7
    assert record["nested"] == {"loss": None, "3": [None, None, True]}
    assert record["nan"] is None and record["text"] == "µ"


def test_what_cannot_be_reported(folder):
    with pytest.raises(TypeError, match="cannot report model.net, a Linear"):
        report.log(rank(0), "x", model={"net": torch.nn.Linear(1, 1)})
    with pytest.raises(ValueError, match="'rank' is set by report.log itself"):
        report.log(rank(0), "x", rank=3)
    assert not (folder / "metrics" / "rank0.jsonl").exists()


def test_outside_a_run(monkeypatch):
    monkeypatch.delenv("DISTLAB_RUN_DIR", raising=False)
    with pytest.raises(RuntimeError, match="no run to report to"):
        report.log(rank(0), "x")


def test_no_room(tmp_path, monkeypatch):
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("DISTLAB_RUN_DIR", str(tmp_path / "file"))
    with pytest.raises(OSError, match="rank 3 on node2 cannot report to .*rank3.jsonl: Not a directory"):
        report.log(rank(3, "node2"), "x")


def test_read_in_rank_order_then_in_order_of_writing(folder):
    for number in (10, 2, 0):
        for value in (1, 2):
            report.log(rank(number), "x", value=value)
    read = [(record["rank"], record["value"]) for record in report.read(folder)]
    assert read == [(0, 1), (0, 2), (2, 1), (2, 2), (10, 1), (10, 2)]


def test_a_torn_last_line_is_left_out_and_a_broken_one_is_named(folder):
    report.log(rank(0), "x", value=1)
    file = folder / "metrics" / "rank0.jsonl"
    file.write_text(file.read_text() + '{"rank": 0, "val')
    assert [record["value"] for record in report.read(folder)] == [1]
    file.write_text(file.read_text() + "\n")
    with pytest.raises(ValueError, match=r"rank0.jsonl, line 2 is no record: '\{\"rank\": 0, \"val'"):
        report.read(folder)


def test_read_of_a_folder_without_records(tmp_path):
    assert report.read(tmp_path) == []
