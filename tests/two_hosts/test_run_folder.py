"""The run folder cannot be made, is full at the start, or fills while ranks talk."""

import errno
import os
import subprocess

import pytest

pytestmark = pytest.mark.timeout(60)
HOSTS = "node1:1,node2:1"


def refused(runner, *words: str) -> OSError:
    with pytest.raises(OSError) as caught:
        runner(*words, hosts=HOSTS)
    return caught.value


@pytest.fixture
def tiny_disk(tmp_path):
    """A file system of 64 KiB."""
    folder = tmp_path / "tiny"
    folder.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=64k", "tmpfs", folder], capture_output=True, text=True, check=False
    )
    if mounted.returncode:
        pytest.skip(f"no file system of its own here: {mounted.stderr.strip()}")
    yield folder
    subprocess.run(["umount", "--lazy", folder], check=True)


def test_a_folder_below_a_file(warm, tmp_path, monkeypatch):
    (tmp_path / "file").write_text("in the way")
    monkeypatch.setenv("DISTLAB_RUNS", str(tmp_path / "file" / "runs"))
    error = refused(warm, "who")
    assert error.errno == errno.ENOTDIR
    assert f"cannot write the run folder {tmp_path / 'file' / 'runs'}" in str(error)
    assert str(error).endswith("Set DISTLAB_RUNS to a folder that you may write")


def test_a_disk_that_is_full_at_the_start(warm, tiny_disk, monkeypatch):
    with open(tiny_disk / "all of it", "wb") as file, pytest.raises(OSError):
        while True:
            os.write(file.fileno(), b"x" * 4096)
    monkeypatch.setenv("DISTLAB_RUNS", str(tiny_disk / "runs"))
    error = refused(warm, "who")
    assert error.errno == errno.ENOSPC
    assert "No space left on device. Free some space, or set DISTLAB_RUNS to a folder on another disk" in str(error)


def test_a_disk_that_fills_while_ranks_talk(warm, tiny_disk, monkeypatch):
    monkeypatch.setenv("DISTLAB_RUNS", str(tiny_disk / "runs"))
    error = refused(warm, "talk", "flood", "30000")
    assert error.errno == errno.ENOSPC
    assert f"cannot write the run folder {tiny_disk / 'runs'}" in str(error)
    assert "Free some space" in str(error)
    monkeypatch.setenv("DISTLAB_RUNS", str(tiny_disk.parent / "elsewhere"))
    assert warm("who", hosts=HOSTS).ok
