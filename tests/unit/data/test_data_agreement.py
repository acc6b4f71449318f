"""Two real ranks on two named hosts: one set for all, or one sentence for all."""

import os
from pathlib import Path

import pytest
import start_ranks
from data_helpers import picture, truncate
from distlab import data
from distlab.data import fashion
from distlab.process import group


def load_each(hosts: list[dict[str, str]], sums: dict[str, str]) -> dict[str, list]:
    """What a rank, alone on its host, got in each case: name, sizes and note, or type and text of an error."""
    rank = os.environ["RANK"]
    alone = {"LOCAL_RANK": "0", "LOCAL_WORLD_SIZE": "1", "GROUP_RANK": rank, "DISTLAB_HOST": f"node{int(rank) + 1}"}
    os.environ.update(alone)
    fashion.SHA256 = sums
    answers = {}
    with group() as me:
        mine = hosts[me.rank]

        def attempt(case: str, name: str, **how: object) -> None:
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
    return answers


@pytest.fixture
def answers(tmp_path, little, root):
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
    own = {"DISTLAB_DATA": str(root), "DISTLAB_OFFLINE": "1"}
    return start_ranks.run(2, load_each, hosts, fashion.SHA256, folder=tmp_path / "run", **own)


def test_two_ranks_agree(answers, tmp_path):
    first, second = answers
    victim = tmp_path / "damaged" / "train" / "b" / "3.png"
    # The damaged image is left out on both, or stops both with the same sentence.
    assert first["skip"] == second["skip"] == ["damaged", 9, 4, f"skipped 1 damaged image: {victim}"]
    assert first["stop"] == second["stop"]
    assert first["stop"][0] == "DataError" and str(victim) in first["stop"][1]
    # One rank's failure is everybody's, named by rank and host.
    assert second["missing"][0] == "DataError" and second["missing"][1].startswith("no data set '")
    assert first["missing"] == ["HostDataError", f"rank 1 on node2: {second['missing'][1]}"]
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
