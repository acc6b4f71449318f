"""Files and folders of which nobody sees half."""

import os
import stat
import threading

import pytest
from distlab import whole
from distlab.whole import whole_folder, write_whole


def names(folder):
    return sorted(path.name for path in folder.iterdir())


@pytest.mark.parametrize("durable", [True, False])
def test_text_and_bytes_replace_what_was_there(tmp_path, durable):
    for content in ("first", b"second", "drittes, längeres"):
        write_whole(tmp_path / "file", content, durable=durable)
        read = (tmp_path / "file").read_bytes()
        assert read == (content if isinstance(content, bytes) else content.encode())
    assert names(tmp_path) == ["file"]
    (tmp_path / "plain").write_text("")
    assert (tmp_path / "file").stat().st_mode == (tmp_path / "plain").stat().st_mode


def test_what_fails_leaves_the_old_one_and_no_half(tmp_path, monkeypatch):
    write_whole(tmp_path / "file", "old")

    def full(_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(whole.os, "fsync", full)
    with pytest.raises(OSError, match="No space"):
        write_whole(tmp_path / "file", "new", durable=True)
    assert (tmp_path / "file").read_text() == "old" and names(tmp_path) == ["file"]
    with pytest.raises(FileNotFoundError):
        write_whole(tmp_path / "missing" / "file", "new")


def test_durable_syncs_the_file_before_and_the_folder_after(tmp_path, monkeypatch):
    synced = []

    def sync(number):
        synced.append((stat.S_ISDIR(os.fstat(number).st_mode), (tmp_path / "file").exists()))

    monkeypatch.setattr(whole.os, "fsync", sync)
    write_whole(tmp_path / "file", "text")
    assert synced == []
    (tmp_path / "file").unlink()
    write_whole(tmp_path / "file", "text", durable=True)
    assert synced == [(False, False), (True, True)]


def test_who_writes_alone_clears_up_after_the_killed(tmp_path):
    for name in (".file.7-ab.half", ".other.7-ab.half"):
        (tmp_path / name).write_text("ha")
    write_whole(tmp_path / "file", "text")
    assert names(tmp_path) == [".file.7-ab.half", ".other.7-ab.half", "file"]
    write_whole(tmp_path / "file", "text", alone=True)
    assert names(tmp_path) == [".other.7-ab.half", "file"]


def test_many_writers_at_once_and_a_reader_sees_whole_files(tmp_path):
    texts = [str(number) * 200_000 for number in range(4)]
    write_whole(tmp_path / "file", texts[0])
    writers = [
        threading.Thread(target=lambda text=text: [write_whole(tmp_path / "file", text) for _ in range(20)])
        for text in texts
    ]
    for writer in writers:
        writer.start()
    while any(writer.is_alive() for writer in writers):
        assert (tmp_path / "file").read_text() in texts
    assert names(tmp_path) == ["file"]


def test_a_folder_appears_with_all_that_is_in_it(tmp_path):
    with whole_folder(tmp_path / "keys") as work:
        assert work.parent == tmp_path and stat.S_IMODE(work.stat().st_mode) == 0o700
        (work / "key").write_text("secret")
        assert not (tmp_path / "keys").exists()
    assert (tmp_path / "keys" / "key").read_text() == "secret" and names(tmp_path) == ["keys"]


def test_a_folder_that_fails_is_not_seen(tmp_path):
    with pytest.raises(ZeroDivisionError), whole_folder(tmp_path / "keys"):
        raise ZeroDivisionError
    assert names(tmp_path) == []
    with pytest.raises(FileNotFoundError), whole_folder(tmp_path / "missing" / "keys"):
        pass


@pytest.mark.parametrize("kind", ["folder", "file"])
def test_whoever_came_first_stays(tmp_path, kind):
    if kind == "folder":
        (tmp_path / "keys" / "theirs").mkdir(parents=True)
    else:
        (tmp_path / "keys").write_text("theirs")
    with pytest.raises(FileExistsError), whole_folder(tmp_path / "keys") as work:
        (work / "mine").touch()
    assert names(tmp_path) == ["keys"]
    assert kind == "file" or names(tmp_path / "keys") == ["theirs"]
