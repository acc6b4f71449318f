"""Two real ranks on two named hosts: one set for all, or one sentence for all."""

import json
import socket

import pytest
from data_helpers import picture, truncate
from distlab import data
from distlab.data import fashion

CODE = """
import json, os, sys
from pathlib import Path
from distlab import data
from distlab.data import fashion
from distlab.process import group

setting = json.loads(sys.argv[1])
fashion.SHA256 = setting["sums"]
answers = {}
with group() as me:
    mine = setting["hosts"][me.rank]
    def attempt(case, name, **how):
        try:
            images = data.load(name, me=me, **how)
            answers[case] = [images.name, len(images.train), len(images.val), images.note]
        except Exception as error:
            answers[case] = [type(error).__name__, str(error)]
    attempt("skip", mine["damaged"], on_damaged="skip", size=8)
    attempt("stop", mine["damaged"], size=8)
    attempt("missing", mine["missing"], size=8)
    attempt("differ", mine["differ"], size=8)
    fashion.INSTALLED = Path(mine["installed"])
    attempt("lacking", "fashion-mnist", root=mine["root"])
print(json.dumps(answers))
"""


@pytest.fixture
def answers(tmp_path, little, python):
    """What each of two ranks got in each case."""
    folders = {name: tmp_path / name for name in ("damaged", "whole", "larger")}
    for name, top in folders.items():
        for split, count in (("train", 7 if name == "larger" else 5), ("val", 2)):
            for label in ("a", "b"):
                for number in range(count):
                    picture(top / split / label / f"{number}.png", (10, 20, 30 * number))
    truncate(folders["damaged"] / "train" / "b" / "3.png")
    hosts = [
        {
            "damaged": str(folders["damaged"]),
            "missing": str(folders["whole"]),
            "differ": str(folders["whole"]),
            "installed": str(little),
            "root": str(tmp_path / "root1"),
        },
        {
            "damaged": str(folders["damaged"]),
            "missing": str(tmp_path / "nothing here"),
            "differ": str(folders["larger"]),
            "installed": str(tmp_path / "nothing here"),
            "root": str(tmp_path / "root2"),
        },
    ]
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = str(probe.getsockname()[1])
    setting = json.dumps({"hosts": hosts, "sums": fashion.SHA256})
    ranks = [
        python(
            CODE,
            setting,
            RANK=str(rank),
            WORLD_SIZE="2",
            LOCAL_RANK="0",
            LOCAL_WORLD_SIZE="1",
            GROUP_RANK=str(rank),
            DISTLAB_HOST=f"node{rank + 1}",
            DISTLAB_DEVICE="cpu",
            DISTLAB_RUNS=str(tmp_path / "runs"),
            MASTER_ADDR="127.0.0.1",
            MASTER_PORT=port,
            OMP_NUM_THREADS="1",
        )
        for rank in range(2)
    ]
    ends = [rank.communicate(timeout=60) for rank in ranks]
    assert [rank.returncode for rank in ranks] == [0, 0], ends
    return [json.loads(out.splitlines()[-1]) for out, _ in ends]


def test_two_ranks_agree(answers, tmp_path):
    first, second = answers
    victim = tmp_path / "damaged" / "train" / "b" / "3.png"
    # The damaged image is left out on both, or stops both with the same sentence.
    assert first["skip"] == second["skip"] == ["damaged", 9, 4, f"skipped 1 damaged image: {victim}"]
    assert first["stop"] == second["stop"]
    assert first["stop"][0] == "ValueError" and str(victim) in first["stop"][1]
    # One rank's failure is everybody's, named by rank and host.
    assert second["missing"][0] == "ValueError" and second["missing"][1].startswith("no data set '")
    assert first["missing"] == ["RuntimeError", f"rank 1 on node2: {second['missing'][1]}"]
    # Hosts with different files do not train together.
    assert first["differ"] == second["differ"]
    assert first["differ"][1].startswith(
        "node2 has other data than node1: 14 + 4 images of larger against 10 + 4 images of whole"
    )
    # What one host lacks, none uses.
    assert first["lacking"] == second["lacking"]
    assert first["lacking"][:3] == ["digits", 1438, 359]
    assert first["lacking"][3].startswith("node2: Fashion-MNIST is not here")


def test_alone_that_host_has_the_set(little, monkeypatch):
    # The twin of the last case: nothing but the other host made it fall back.
    monkeypatch.setattr(fashion, "INSTALLED", little)
    assert data.load().name == "fashion-mnist"
