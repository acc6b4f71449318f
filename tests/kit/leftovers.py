"""Finds what a run leaves behind: processes by a mark in their environment, ports, zombies."""

import os
from contextlib import suppress

import psutil
from distlab.waiting import wait_until

MARK = "LAB_AGENT_TEST_MARK"


def marked(mark: str) -> dict[int, str]:
    """Command lines, by process id, of the processes that were started under a mark."""
    found = {}
    for process in psutil.process_iter():
        with suppress(psutil.Error):
            if process.environ().get(MARK) == mark and process.status() != psutil.STATUS_ZOMBIE:
                found[process.pid] = " ".join(process.cmdline())
    return found


def zombies() -> list[int]:
    """Process ids of this process's descendants that ended and were not buried."""
    found = []
    for process in psutil.Process().children(recursive=True):
        with suppress(psutil.Error):
            if process.status() == psutil.STATUS_ZOMBIE:
                found.append(process.pid)
    return found


def listening(pids: object) -> dict[int, int]:
    """TCP ports on which these processes listen, with the process id of each."""
    found = {}
    for pid in pids:
        with suppress(psutil.Error):
            for connection in psutil.Process(pid).net_connections("tcp"):
                if connection.status == psutil.CONN_LISTEN:
                    found[connection.laddr.port] = pid
    return found


def assert_nothing_left(mark: str, within: float) -> None:
    """No process of a mark is left after so many seconds, and so no port either."""
    wait_until(lambda: not marked(mark), within)
    left = marked(mark)
    ports = listening(left)
    for pid in left:
        with suppress(ProcessLookupError):
            os.kill(pid, 9)
    assert not left, f"left running after {within} s: {left}, listening on {ports}"
