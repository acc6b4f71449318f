"""One process prepares, the others wait, and nothing half-written is ever read."""

import errno
import os
import socket
import threading
import time

import pytest
from distlab.data import store
from distlab.data.store import Unavailable, find, once
from filelock import FileLock

HOST = socket.gethostname()


def write_two(part):
    (part / "a.npy").write_bytes(b"aaaa")
    (part / "b.npy").write_bytes(b"bb")
    return {"source": "test"}


def must_not_run(part):
    raise AssertionError("prepared a second time")


def hidden(root):
    return sorted(path.name for path in root.iterdir() if path.name.startswith(".") and not path.name.endswith(".lock"))


def test_made_once_and_found_again(root):
    made = once(root / "set", write_two)
    again = once(root / "set", must_not_run)
    assert made.fresh and not again.fresh
    assert again.facts["files"] == {"a.npy": 4, "b.npy": 2}
    assert again.facts["source"] == "test" and again.facts["name"] == "set"
    assert (root / "set" / "a.npy").read_bytes() == b"aaaa"
    assert hidden(root) == []


def test_a_prepared_set_is_read_where_nothing_can_be_written(root, monkeypatch):
    once(root / "set", write_two)
    monkeypatch.setattr(store, "_make_root", must_not_run)
    assert once(root / "set", must_not_run).facts["source"] == "test"


def test_not_seen_before_it_is_whole(root):
    seen = []

    def slowly(part):
        (part / "a.npy").write_bytes(b"aa")
        seen.append(find(root / "set"))
        seen.append((root / "set").exists())
        write_two(part)
        seen.append(find(root / "set"))
        return {}

    once(root / "set", slowly)
    assert seen == [None, False, None]
    assert find(root / "set").facts["files"]["a.npy"] == 4


def test_it_appears_in_one_step(root):
    seen = []

    def watch():
        while not (root / "set").exists():
            time.sleep(0)
        seen.append(find(root / "set"))

    def many(part):
        for number in range(500):
            (part / f"{number}.npy").write_bytes(b"x")
        return {}

    watcher = threading.Thread(target=watch)
    watcher.start()
    once(root / "set", many)
    watcher.join()
    assert seen[0] is not None and len(seen[0].facts["files"]) == 500


@pytest.mark.parametrize("harm", ["truncate", "delete", "marker"])
def test_a_damaged_set_is_made_anew(root, harm):
    once(root / "set", write_two)
    if harm == "truncate":
        os.truncate(root / "set" / "a.npy", 3)
    elif harm == "delete":
        (root / "set" / "b.npy").unlink()
    else:
        (root / "set" / store.MARKER).write_text('{"format": 1, "fil')
    assert find(root / "set") is None
    assert once(root / "set", write_two).fresh
    assert (root / "set" / "a.npy").read_bytes() == b"aaaa" and (root / "set" / "b.npy").read_bytes() == b"bb"
    assert hidden(root) == []


def test_somebody_elses_folder_is_not_removed(root):
    (root / "set").mkdir(parents=True)
    (root / "set" / "mine.txt").write_text("mine")
    with pytest.raises(FileExistsError, match=r"set is in the way and was not made by distlab"):
        once(root / "set", write_two)
    assert (root / "set" / "mine.txt").read_text() == "mine"
    assert hidden(root) == []


def test_a_failed_preparation_leaves_nothing(root):
    def fails(part):
        write_two(part)
        raise ValueError("half way")

    with pytest.raises(ValueError, match="half way"):
        once(root / "set", fails)
    assert not (root / "set").exists() and hidden(root) == []


def test_killed_while_preparing_the_next_starts_clean(root, python):
    killed = python(
        """
import sys, time
from pathlib import Path
from distlab.data.store import once
def make(part):
    (part / "a.npy").write_bytes(b"half")
    (part / "leftover.npy").write_bytes(b"x")
    print("begun", flush=True)
    time.sleep(60)
once(Path(sys.argv[1]), make)
""",
        root / "set",
    )
    assert killed.stdout.readline() == "begun\n"
    waiting = threading.Timer(0.3, killed.kill)
    waiting.start()
    begun = time.monotonic()
    # Waits for the living preparer, takes over as soon as it is dead.
    made = once(root / "set", write_two)
    assert 0.2 < time.monotonic() - begun < 10
    assert made.facts["files"] == {"a.npy": 4, "b.npy": 2}
    assert (root / "set" / "a.npy").read_bytes() == b"aaaa"
    assert hidden(root) == []


def test_many_at_once_one_prepares(root, tmp_path, python):
    code = """
import sys, time
from pathlib import Path
from distlab.data.store import once
def make(part):
    with open(sys.argv[2], "a") as count:
        count.write("x")
    (part / "a.npy").write_bytes(b"a")
    time.sleep(0.5)
    (part / "b.npy").write_bytes(b"b" * 1000)
    return {}
found = once(Path(sys.argv[1]), make, leads=sys.argv[3] == "0")
print(found.fresh, len((found.folder / "b.npy").read_bytes()))
"""
    processes = [python(code, root / "set", tmp_path / "count", local_rank) for local_rank in range(4)]
    answers = [process.communicate(timeout=60) for process in processes]
    assert sorted(out for out, _ in answers) == ["False 1000\n"] * 3 + ["True 1000\n"], answers
    assert (tmp_path / "count").read_text() == "x"


def test_the_leader_prepares_although_it_comes_later(root):
    who = []

    def make(name):
        def record(part):
            who.append(name)
            return write_two(part)

        return record

    follower = threading.Thread(target=once, args=(root / "set", make("follower")), kwargs={"leads": False})
    follower.start()
    time.sleep(0.3)
    once(root / "set", make("leader"))
    follower.join()
    assert who == ["leader"]


def test_a_follower_takes_over_when_no_leader_comes(root, monkeypatch):
    monkeypatch.setattr(store, "LEADER_SECONDS", 0.2)
    begun = time.monotonic()
    assert once(root / "set", write_two, leads=False).fresh
    assert time.monotonic() - begun > 0.2


def test_a_waiting_process_says_so_once_and_gives_up_at_the_deadline(root, monkeypatch):
    monkeypatch.setattr(store, "SECONDS_BEFORE_NOTICE", 0.2)
    monkeypatch.setenv("DISTLAB_PREPARE_TIMEOUT", "0.6")
    root.mkdir()
    said = []
    holder = FileLock(root / f".set@{HOST}.lock")

    def hold():
        with holder:
            held.set()
            done.wait(10)

    held, done = threading.Event(), threading.Event()
    thread = threading.Thread(target=hold)
    thread.start()
    held.wait(10)
    try:
        with pytest.raises(TimeoutError, match=r"still preparing set after 1 s \(it holds .*\.lock\)"):
            once(root / "set", write_two, say=said.append)
    finally:
        done.set()
        thread.join()
    assert said == ["waiting for another process on this machine to prepare set, at most 1 s"]


def test_unavailable_is_remembered_for_a_while(root):
    tries = []

    def fails(part):
        tries.append(1)
        raise Unavailable("no network", remember=True)

    for retry in (False, False, True):
        with pytest.raises(Unavailable, match="^no network$"):
            once(root / "set", fails, retry=retry)
    assert len(tries) == 2
    old = time.time() - store.RETRY_SECONDS - 1
    os.utime(root / f".set@{HOST}.failed", (old, old))
    with pytest.raises(Unavailable):
        once(root / "set", fails)
    assert len(tries) == 3
    assert once(root / "set", write_two, retry=True).fresh
    assert hidden(root) == []


def test_unavailable_for_a_lasting_reason_is_not_remembered(root):
    def fails(part):
        raise Unavailable("forbidden")

    with pytest.raises(Unavailable):
        once(root / "set", fails)
    assert once(root / "set", write_two).fresh


def test_a_data_folder_that_cannot_be_written_is_named(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(OSError, match=r"cannot write the data folder .*file/data: .*set DISTLAB_DATA"):
        once(tmp_path / "file" / "data" / "set", write_two)


def test_a_full_disk_is_named(root):
    def fills(part):
        write_two(part)
        raise OSError(errno.ENOSPC, "No space left on device")

    with pytest.raises(OSError, match=r"no space left in .*data while preparing set: .*DISTLAB_DATA"):
        once(root / "set", fills)
    assert hidden(root) == []


def test_where_data_live(monkeypatch, tmp_path):
    assert store.data_root(tmp_path / "here") == tmp_path / "here"
    monkeypatch.setenv("DISTLAB_DATA", "/from/environment")
    assert str(store.data_root()) == "/from/environment"
    monkeypatch.delenv("DISTLAB_DATA")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert store.data_root() == tmp_path / ".cache" / "distlab" / "data"
