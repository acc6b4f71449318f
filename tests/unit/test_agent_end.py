"""An agent ends whatever happens, and closes its own doors while others close theirs."""

import os
import subprocess
import sys
import threading
from pathlib import Path

from distlab.agent import placeholder
from distlab.runs import WORKSPACE


def end_an_agent(code: str, folder: Path) -> subprocess.CompletedProcess:
    """A process of its own, since an agent's end is the process's."""
    environ = {**os.environ, "TMPDIR": str(folder), "PYTHONPATH": str(WORKSPACE)}
    return subprocess.run([sys.executable, "-c", code], env=environ, capture_output=True, text=True, timeout=60)


def test_doors_that_others_close_meanwhile(tmp_path):
    mine, other = (Path(placeholder.door(f"test{os.getpid()}{name}", "node1")) for name in "ab")
    over = threading.Event()

    def open_and_close() -> None:
        while not over.is_set():
            other.symlink_to("/somewhere/else")
            other.unlink()

    thread = threading.Thread(target=open_and_close)
    thread.start()
    try:
        for _ in range(2000):
            mine.symlink_to(tmp_path / "job")
            placeholder.close_doors(str(tmp_path))
            assert not mine.is_symlink()
    finally:
        over.set()
        thread.join()
        mine.unlink(missing_ok=True)


def test_a_door_of_another_agent_stays(tmp_path):
    other = Path(placeholder.door(f"test{os.getpid()}", "node1"))
    other.symlink_to(tmp_path.parent / "another" / "job")
    try:
        placeholder.close_doors(str(tmp_path))
        assert other.is_symlink()
    finally:
        other.unlink()


def test_an_agent_ends_also_when_its_end_fails(tmp_path):
    code = (
        "from distlab.agent import placeholder\n"
        "from distlab.agent.agent import Agent\n"
        "placeholder.close_doors = lambda folder: 1 / 0\n"
        "try:\n"
        "    Agent()._die()\n"
        "except ZeroDivisionError:\n"
        "    raise SystemExit('it lives on')\n"
    )
    done = end_an_agent(code, tmp_path)
    assert (done.returncode, done.stderr) == (0, "")


def test_an_agent_that_ends_starts_no_helper_again(tmp_path):
    code = (
        "from multiprocessing import resource_tracker\n"
        "from distlab.agent.agent import Agent\n"
        "def sweep(keep):\n"
        "    try:\n"
        "        resource_tracker.ensure_running()\n"
        "    except OSError as error:\n"
        "        print(error, flush=True)\n"
        "agent = Agent()\n"
        "agent._sweep = sweep\n"
        "agent._die()\n"
    )
    done = end_an_agent(code, tmp_path)
    # An agent's stdout is for messages alone.
    assert (done.returncode, done.stderr) == (0, "this agent ends\n")
