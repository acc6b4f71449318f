"""The test command's two processes: who does what, in which order, who runs alone, and what the end says."""

import fcntl
import os
import subprocess
import sys
import threading
import time
from pathlib import Path

import lanes
import pytest
import turns

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.parametrize(
    ("nodeid", "piece"),
    [
        ("tests/engines/test_containers.py::test_both_are_healthy", "docker"),
        ("tests/engines/test_containers_browser.py::test_a", "docker"),
        ("tests/engines/test_browser.py::test_a", "docker"),
        ("tests/engines/test_classroom.py::test_a[docker]", "docker"),
        ("tests/engines/test_apptainer.py::test_a", "tests/engines/test_apptainer.py"),
        ("tests/unit/test_cli.py::test_a[x::y]", "tests/unit/test_cli.py"),
        ("workspace/04_horovod.ipynb::Cell 3", "workspace/04_horovod.ipynb"),
    ],
    ids=range(7),
)
def test_a_file_is_a_piece_and_containers_are_one(nodeid, piece):
    assert lanes.piece(nodeid) == piece


def test_who_waits_for_which_engine():
    files = ("apptainer", "browser", "containers_browser", "image", "lab", "tensorboard")
    locks = {file: lanes.lock(f"tests/engines/test_{file}.py::test_a") for file in files}
    assert {file for file, lock in locks.items() if lock == "docker.lock"} == {"containers_browser", "image"}
    assert {file for file, lock in locks.items() if lock == "apptainer.lock"} == {"apptainer"}
    assert lanes.lock("tests/two_hosts/test_ssh.py::test_a") is None


def test_a_lock_is_waited_for_and_no_longer_than_allowed(tmp_path):
    lock, began = tmp_path / "engine.lock", time.monotonic()
    with lock.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        turns.wait(lock, 0.6)
        assert time.monotonic() - began >= 0.6
        threading.Timer(0.3, fcntl.flock, (file, fcntl.LOCK_UN)).start()
        turns.wait(lock, 60)
    assert time.monotonic() - began < 30


def test_what_waits_for_horovod_is_late_and_all_that_asks_for_it_waits():
    early, late = "tests/unit/test_horovod_wheel.py::test_a", "tests/lessons/horovod/test_horovod_ddp.py::test_a"
    assert lanes.place(early) < lanes.place("tests/engines/test_containers.py::test_a") < lanes.place(late)
    assert lanes.HOROVOD.search(late) and not lanes.HOROVOD.search(early)
    # By its text: whoever calls needs.horovod() would be left out if it did not wait.
    for path in (ROOT / "tests").rglob("test_*.py"):
        if "needs.horovod()" in path.read_text() and path != Path(__file__):
            # It asks for Horovod in one exercise's mistakes alone.
            name = "test_a[horovod_ddp-a]" if path.name == "test_mistakes.py" else "test_a"
            assert lanes.HOROVOD.search(f"{path.relative_to(ROOT)}::{name}"), path
    mistakes = [f"tests/lessons/test_mistakes.py::test_a[{name}-a mistake-of it]" for name in ("ddp", "horovod_ddp")]
    assert lanes.piece(mistakes[0]) != lanes.piece(mistakes[1])
    assert lanes.place(mistakes[0]) < lanes.place(late) == lanes.place(mistakes[1])


def test_one_that_is_alone_meets_nobody_and_is_not_kept_waiting(tmp_path):
    inside, seen = [], []

    def others():
        while len(seen) < 2:
            with turns.turn(tmp_path, alone=False):
                inside.append(1)
                time.sleep(0.01)
                inside.pop()

    def alone():
        with turns.turn(tmp_path, alone=True):
            before = len(inside)
            time.sleep(0.1)
            seen.append((before, len(inside)))

    threads = [threading.Thread(target=work, daemon=True) for work in (others, others, alone, alone)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(20)
    assert seen == [(0, 0), (0, 0)]


MIXED = """
import pytest, time, threading

def test_good(): time.sleep(0.02)
def test_bad(): assert 1 + 1 == 3
def test_left_out(): pytest.skip("nothing to test with")
@pytest.fixture
def broken(): raise OSError("no such thing")
def test_of_what_is_broken(broken): pass
"""


@pytest.mark.parametrize(
    ("processes", "ci", "last"),
    [((), "", "1 passed, 2 failed"), (("-n", "2"), "true", "1 passed, 3 failed")],
    ids=["one process", "two, in CI"],
)
def test_the_end_names_each_failure_and_counts_all(tmp_path, processes, ci, last):
    ran = run(tmp_path, MIXED, ci, *processes)
    assert ran.stdout.splitlines()[-1] == last, ran.stdout + ran.stderr
    assert ran.returncode == 1
    end = ran.stdout.partition("short test summary info")[2]
    assert "FAILED" in end and "test_bad" in end and "ERROR" in end and "test_of_what_is_broken" in end
    assert "slowest 10 durations" in ran.stdout and "1 left out. Skipped: nothing to test with" in ran.stdout


@pytest.mark.parametrize(("ci", "status", "last"), [("", 0, "1 passed, 0 failed"), ("true", 1, "1 passed, 1 failed")])
def test_what_is_left_out_fails_in_ci_alone(tmp_path, ci, status, last):
    skips = "import pytest\ndef test_good(): pass\ndef test_left_out(): pytest.skip('nothing')\n"
    ran = run(tmp_path, skips, ci)
    assert (ran.returncode, ran.stdout.splitlines()[-1]) == (status, last), ran.stdout + ran.stderr


def run(folder: Path, text: str, ci: str, *words: str) -> subprocess.CompletedProcess:
    """pytest with this project's settings and conftest on a file of the test's own."""
    (folder / "test_mixed.py").write_text(text)
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "-c", ROOT / "pyproject.toml", *words]
    plugin = ["-p", "conftest", "--rootdir", folder, folder]
    tests = (ROOT / "tests", ROOT / "tests" / "kit", ROOT / "tests" / "notebooks")
    paths = os.pathsep.join([*map(str, tests), os.environ.get("PYTHONPATH", "")])
    env = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}
    env |= {"CI": ci, "PYTHONPATH": paths}
    return subprocess.run(
        [*command, *plugin], cwd=ROOT, env=env, capture_output=True, text=True, timeout=120, check=False
    )
