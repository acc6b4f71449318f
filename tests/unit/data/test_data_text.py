"""Text from the standard library's sources."""

import sysconfig
from pathlib import Path

import pytest
import torch
from distlab import data
from distlab.data import stdlib


def test_text_is_the_librarys_sources_in_order():
    train = data.text(300_000)
    assert train.dtype == torch.uint8 and train.shape == (300_000,)
    assert torch.equal(train, data.text(300_000))
    first = next(stdlib.source_files()).read_bytes()
    assert bytes(train[: len(first)].tolist()) == first
    assert b"def " in bytes(train.tolist())


def test_no_tests_and_no_installed_packages():
    top = Path(sysconfig.get_path("stdlib"))
    files = list(stdlib.source_files())
    assert len(files) > 300 and top / "random.py" in files and top / "unittest" / "case.py" in files
    folders = {part for path in files for part in path.relative_to(top).parts[:-1]}
    assert not folders & {"test", "tests", "idle_test", "site-packages", "dist-packages", "__pycache__"}
    assert "json" in folders and files == list(stdlib.source_files())


def test_tests_are_left_out_of_a_library_that_has_them(tmp_path, monkeypatch):
    for path in (
        "b.py",
        "a.py",
        "test/x.py",
        "pkg/tests/x.py",
        "pkg/m.py",
        "site-packages/x.py",
        ".hid/x.py",
        "pkg/m.txt",
    ):
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).write_text(path)
    monkeypatch.setattr(sysconfig, "get_path", lambda name: str(tmp_path))
    assert [str(path.relative_to(tmp_path)) for path in stdlib.source_files()] == ["a.py", "b.py", "pkg/m.py"]
    assert bytes(data.text().tolist()) == b"a.pyb.pypkg/m.py"
    with pytest.raises(FileNotFoundError, match="no Python sources in"):
        data.text(split="val")


def test_the_order_is_not_that_of_the_disk(tmp_path, monkeypatch):
    for letter in "kbgadjfceihl":
        (tmp_path / letter).mkdir()
        (tmp_path / f"{letter}.py").write_text(letter)
        (tmp_path / letter / "m.py").write_text(letter.upper())
    monkeypatch.setattr(sysconfig, "get_path", lambda name: str(tmp_path))
    names = [str(path.relative_to(tmp_path)) for path in stdlib.source_files()]
    assert names == [f"{letter}.py" for letter in "abcdefghijkl"] + [f"{letter}/m.py" for letter in "abcdefghijkl"]


def test_validation_text_is_other_text():
    files = list(stdlib.source_files())
    tenth = files[9].read_bytes()
    val = bytes(data.text(10**9, split="val").tolist())
    assert val.startswith(tenth)
    held_out = sum(path.stat().st_size for path in files[9::10])
    assert len(val) == held_out
    assert len(data.text(10**9)) == sum(path.stat().st_size for path in files) - held_out


def test_bad_arguments():
    with pytest.raises(ValueError, match="split='test' is unknown"):
        data.text(split="test")
    with pytest.raises(ValueError, match="limit_bytes=0 leaves no text"):
        data.text(0)
