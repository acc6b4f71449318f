"""The mirror of the runs' records for TensorBoard, read back as TensorBoard reads it."""

import json
import subprocess
import sys
from itertools import count
from pathlib import Path

import pytest
import torch
from distlab import process, report
from distlab.board import Mirror, MirrorError
from distlab.board.server import require_port
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
from tensorboard.backend.event_processing.event_file_loader import LegacyEventFileLoader

EPOCH = {"rank": 0, "host": "node1", "time": 1795829289.706, "event": "epoch", "epoch": 1, "loss": 0.5}


class Board:
    """A folder of runs, the mirror of it, and what TensorBoard would see."""

    def __init__(self, folder: Path) -> None:
        self.runs, self.folder = folder / "runs", folder / "mirror"
        self.mirror = Mirror(self.runs, self.folder)

    def file(self, run="first", rank=0) -> Path:
        path = self.runs / run / "metrics" / f"rank{rank}.jsonl"
        path.parent.mkdir(parents=True, exist_ok=True)
        return path

    def write(self, text: str, run="first", rank=0) -> None:
        with self.file(run, rank).open("a") as file:
            file.write(text)

    def epochs(self, *numbers: int, run="first", rank=0) -> None:
        for number in numbers:
            self.write(line(EPOCH | {"rank": rank, "epoch": number, "loss": number / 2}), run, rank)

    def seen(self) -> list[str]:
        self.mirror.look()
        return sorted({str(path.parent.relative_to(self.folder)) for path in self.folder.rglob("*tfevents*")})

    def curves(self, run="first", rank=0) -> dict[str, list[tuple]]:
        """Tag to points (step, value), as TensorBoard has them; it reads float32."""
        self.mirror.look()
        read = EventAccumulator(str(self.folder / run / f"rank{rank}")).Reload()
        points = {}
        for tag in read.Tags()["tensors"]:
            points[tag] = [(point.step, point.tensor_proto.float_val[0]) for point in read.Tensors(tag)]
        for tag in read.Tags()["scalars"]:
            points[tag] = [(point.step, point.value) for point in read.Scalars(tag)]
        return points

    def losses(self, run="first", rank=0) -> list[tuple]:
        return self.curves(run, rank)["epoch/loss"]


def line(record: object) -> str:
    return json.dumps(record) + "\n"


@pytest.fixture
def board(tmp_path):
    return Board(tmp_path)


def test_what_ranks_report_becomes_curves(board, monkeypatch):
    monkeypatch.setenv("DISTLAB_RUN_DIR", str(board.runs / "first"))
    me = process.Rank(3, 4, 0, 1, 0, "node2", "none", torch.device("cpu"), None, "")
    report.log(me, "setup", world_size=4, lr=0.25)
    for epoch in (1, 2):
        report.log(me, "epoch", epoch=epoch, steps=epoch * 10, loss=torch.tensor(1 / epoch), accuracy=None, on="cpu")
    report.log(me, "end", epochs=2, steps=20, seconds=1.5, checkpoint=board.runs)
    assert board.curves("first", 3) == {
        "epoch/steps": [(1, 10), (2, 20)],
        "epoch/loss": [(1, 1), (2, 0.5)],
        "end/steps": [(2, 20)],
        "end/seconds": [(2, 1.5)],
    }
    assert board.seen() == ["first/rank3"]


def test_the_step_of_a_record(board):
    for record in (
        {"event": "step", "step": 17, "epoch": 2, "loss": 0.5, "norms": {"conv": 2, "fc": {"bias": 3}}},
        {"event": "shard", "epoch": 0, "set_epoch": True, "size": 8},
        {"event": "end", "steps": 20, "images": 64},
        # No step: options that are called as the end's are, a step that is no whole number, none at all.
        {"event": "trained", "epochs": 3, "steps": 9, "samples": 40},
        {"event": "odd", "step": 1.5, "epoch": True, "value": 1},
        {"event": "speed", "images_per_second": 12.5},
    ):
        board.write(line(EPOCH | record if "epoch" in record else {"time": 1.0} | record))
    assert board.curves() == {
        "step/epoch": [(17, 2)],
        "step/loss": [(17, 0.5)],
        "step/norms/conv": [(17, 2)],
        "step/norms/fc/bias": [(17, 3)],
        "shard/size": [(0, 8)],
        "shard/loss": [(0, 0.5)],
        "end/images": [(20, 64)],
    }


def test_the_time_is_the_record_s_own(board):
    board.epochs(1, 2)
    board.mirror.look()
    (path,) = board.folder.rglob("*tfevents*")
    # The first event, without values, is the file's version; TensorBoard sorts runs by its time.
    assert [event.wall_time for event in LegacyEventFileLoader(str(path)).Load()] == [EPOCH["time"]] * 3


def test_it_grows_as_the_files_do(board):
    assert board.seen() == []
    board.epochs(1)
    assert board.losses() == [(1, 0.5)]
    board.epochs(2, 3)
    assert board.losses() == [(1, 0.5), (2, 1.0), (3, 1.5)]
    board.epochs(1, rank=11)
    board.epochs(1, run="second")
    assert board.seen() == ["first/rank0", "first/rank11", "second/rank0"]
    assert board.losses() == [(1, 0.5), (2, 1.0), (3, 1.5)]
    assert board.losses(rank=11) == board.losses("second") == [(1, 0.5)]


def test_a_torn_line_waits_for_its_rest(board, capsys):
    whole = line(EPOCH | {"host": "nöde"})
    board.epochs(2)
    for part in (whole[:30], whole[30:-1]):
        board.write(part)
        assert board.losses() == [(2, 1.0)]
    board.write(whole[-1])
    assert board.losses() == [(2, 1.0), (1, 0.5)]
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize(
    "broken",
    [
        *('{"rank": 0, "val', "", "[1, 2]", "7", '{"time": 1}', "\0" * 9, "\ud800", "[" * 100_000),
        *(json.dumps(EPOCH | wrong) for wrong in ({"time": "noon"}, {"time": None}, {"event": 5}, {"event": None})),
        *(json.dumps(EPOCH | wrong) for wrong in ({"loss": 10**400}, {"epoch": 2**70})),
    ],
    ids=count(),
)
def test_a_broken_line_is_said_once_and_left_out(board, capsys, broken):
    board.epochs(1)
    with board.file().open("ab") as file:
        file.write(broken.encode(errors="surrogatepass") + b"\n")
    board.epochs(3)
    assert board.losses() == [(1, 0.5), (3, 1.5)]
    said = capsys.readouterr().err
    assert said.count("\n") == 1 and f"{board.file()}, line 2 is no record: " in said
    board.write(broken.encode(errors="replace").decode() + "\n")
    board.epochs(4)
    assert board.losses() == [(1, 0.5), (3, 1.5), (4, 2.0)]
    assert capsys.readouterr().err == ""


def test_what_cannot_be_read_is_said_once(board, capsys):
    board.file().mkdir()
    board.epochs(1, rank=1)
    assert board.seen() == ["first/rank1"]
    assert capsys.readouterr().err == f"distlab board: {board.file()} cannot be read: Is a directory; it is left out\n"
    board.epochs(2, rank=1)
    assert board.losses(rank=1) == [(1, 0.5), (2, 1.0)]
    assert capsys.readouterr().err == ""
    board.file().rmdir()
    board.epochs(1)
    assert board.losses() == [(1, 0.5)]


def test_what_is_deleted_disappears(board):
    for run in ("first", "second"):
        for rank in (0, 1):
            board.epochs(1, run=run, rank=rank)
    assert len(board.seen()) == 4
    board.file("first", 0).unlink()
    assert board.seen() == ["first/rank1", "second/rank0", "second/rank1"]
    board.file("first", 1).unlink()
    assert board.seen() == ["second/rank0", "second/rank1"]
    assert [path.name for path in board.folder.iterdir()] == ["second"]
    board.epochs(3)
    assert board.losses() == [(3, 1.5)]
    board.runs.rename(board.runs.with_name("elsewhere"))
    assert board.seen() == []


def test_a_replaced_file_starts_over(board):
    board.epochs(1, 2)
    assert board.losses() == [(1, 0.5), (2, 1.0)]
    board.file().write_text(line(EPOCH | {"loss": 4}))
    assert board.losses() == [(1, 4)]
    board.epochs(7, 8, 9, run="other")
    board.file("other").replace(board.file())
    assert board.losses() == [(7, 3.5), (8, 4.0), (9, 4.5)]


def test_a_look_that_finds_nothing_new_opens_no_file(board, monkeypatch):
    board.epochs(1, 2)
    board.write('{"torn')
    before = board.losses()
    monkeypatch.setattr("builtins.open", lambda *_: pytest.fail("opened"))
    board.mirror.look()
    monkeypatch.undo()
    assert board.losses() == before
    assert [path.name for path in board.runs.rglob("*")] == ["first", "metrics", "rank0.jsonl"]


def test_another_mirror_in_the_same_folder_repeats_nothing(board):
    board.epochs(1, 2)
    board.mirror.look()
    note = board.folder / "first" / "rank0" / "note.txt"
    note.write_text("mine")
    board.mirror = Mirror(board.runs, board.folder)
    assert board.losses() == [(1, 0.5), (2, 1.0)]
    board.file().unlink()
    assert board.seen() == [] and note.read_text() == "mine"


def test_only_ranks_records_are_read(board):
    board.epochs(1)
    for name in ("rank0.jsonl.bak", "rankx.jsonl", "summary.jsonl"):
        board.file().with_name(name).write_text(line(EPOCH))
    (board.runs / "jupyterlab.log").write_text("")
    (board.runs / "empty").mkdir()
    board.write(line(EPOCH | {"event": "end"}), "no curves")
    assert board.seen() == ["first/rank0"]


def test_a_mirror_that_cannot_be_written(board):
    board.folder.write_text("")
    board.epochs(1)
    with pytest.raises(MirrorError, match="cannot write TensorBoard's files in .*first/rank0: Not a directory"):
        board.mirror.look()


@pytest.mark.parametrize(
    ("bind", "port", "part"),
    [
        ("127.0.0.1", 70_000, "70000 is no port: give one from 1 to 65535"),
        ("192.0.2.1", 0, "cannot listen on 192.0.2.1, port 0: Cannot assign requested address. Give another"),
    ],
)
def test_an_address_on_which_nobody_can_listen(bind, port, part):
    with pytest.raises(OSError, match=part):
        require_port(port, bind)


def test_the_mirror_needs_neither_torch_nor_tensorflow(board):
    board.epochs(1)
    code = f"""import sys; from pathlib import Path; from distlab.board import Mirror
Mirror(Path({str(board.runs)!r}), Path({str(board.folder)!r})).look()
print([name for name in ("torch", "tensorflow") if name in sys.modules])"""
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "[]\n"
    assert len(list(board.folder.rglob("*tfevents*"))) == 1
