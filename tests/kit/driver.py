"""Runs that are interrupted or killed: a Python process that starts one, and blows that fall while it is under way."""

import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress

import psutil
import pytest
from distlab.waiting import wait_until
from running import SCRIPTS, TWO_BY_TWO, marked_environment

DRIVER = """
import sys
from distlab import run
print("driver up", flush=True)
how = {"warm": {}, "cold": {"cold": True}}.get(sys.argv[3], {"launcher": sys.argv[3]})
run(sys.argv[1], *sys.argv[4:], hosts=sys.argv[2], timeout=80, **how)
"""


class Driver:
    """A Python process that starts a run, as a person's would."""

    def __init__(self, mark: str, *words: str, hosts: str = TWO_BY_TWO, how: str = "warm") -> None:
        command = [sys.executable, "-c", DRIVER, str(SCRIPTS / "misbehave.py"), hosts, how, *words]
        self.process = subprocess.Popen(
            command,
            env=marked_environment(mark),
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )
        self.said = ""

    def wait_for(self, text: str, times: int) -> None:
        """Read what it prints until `text` was there so many times."""
        for line in self.process.stdout:
            self.said += line
            times -= text in line
            if times == 0:
                return
        pytest.fail(f"the driver ended before it said {text!r}: {self.said}")

    def end_by(self, number: signal.Signals, within: float) -> float:
        """Send it a signal; the seconds until it has ended."""
        started = time.monotonic()
        self.process.send_signal(number)
        self.said += self.process.communicate(timeout=within)[0]
        return time.monotonic() - started


def later(when: Callable[[], object], strike: Callable[[], object], after: float = 0.3) -> threading.Thread:
    """Strike so many seconds after `when()` holds."""

    def wait() -> None:
        wait_until(when, 30)
        time.sleep(after)
        strike()

    thread = threading.Thread(target=wait, daemon=True)
    thread.start()
    return thread


def sleeping_ranks(agent: int) -> list[int]:
    """Process ids of a host's warm ranks: the children of its forkserver."""
    found = []
    with suppress(psutil.Error):
        for process in psutil.Process(agent).children():
            if "forkserver" in " ".join(process.cmdline()):
                found += [rank.pid for rank in process.children() if rank.status() != psutil.STATUS_ZOMBIE]
    return found
