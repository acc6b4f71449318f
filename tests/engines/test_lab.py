"""JupyterLab as `distlab lab` and `make lab` start it."""

import json
import os
import re
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from pathlib import Path

import psutil
import pytest

ROOT = Path(__file__).resolve().parents[2]
DISTLAB = Path(sys.executable).with_name("distlab")
DIRECT = urllib.request.build_opener(urllib.request.ProxyHandler({}))


class Lab:
    """A started command that ends in JupyterLab, and what it says."""

    def __init__(self, *command: str, **env: str) -> None:
        self.process = subprocess.Popen(
            command,
            cwd=ROOT,
            env={**os.environ, **env},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )
        self.said = ""

    def wait_for_url(self) -> tuple[str, str]:
        """Address and token, once the server answers."""
        for line in self.process.stdout:
            self.said += line
            if found := re.search(r"(http://[\d.]+:\d+)/lab/tree/Start_Here.ipynb\?token=(\S+)", line):
                return found[1], found[2]
        raise AssertionError(f"no URL was printed:\n{self.said}")

    def stop(self) -> None:
        """As Ctrl-C in the terminal does."""
        os.killpg(self.process.pid, signal.SIGINT)
        self.process.wait(timeout=30)


@pytest.fixture
def lab(tmp_path):
    started = []

    def start(*command: str, **env: str) -> Lab:
        started.append(Lab(*command, DISTLAB_RUNS=str(tmp_path), **env))
        return started[-1]

    yield start
    for one in started:
        if one.process.poll() is None:
            os.killpg(one.process.pid, signal.SIGKILL)
            one.process.wait()


def answer(url: str) -> tuple[int, dict]:
    try:
        with DIRECT.open(url, timeout=10) as reply:
            return reply.status, json.load(reply)
    except urllib.error.HTTPError as error:
        return error.code, {}


@pytest.mark.timeout(120)
def test_it_asks_for_a_token_and_stays_on_this_machine(lab):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        started = lab(str(DISTLAB), "lab", "--no-browser", "--port", str(port))
        url, token = started.wait_for_url()
    assert f"port {port} is taken; using" in started.said
    assert answer(f"{url}/api/contents")[0] == 403
    status, contents = answer(f"{url}/api/contents?token={token}")
    assert status == 200
    assert "Start_Here.ipynb" in [one["name"] for one in contents["content"]]
    family = [started.process.pid, *(one.pid for one in psutil.Process(started.process.pid).children(recursive=True))]
    listening = [one for one in psutil.net_connections("tcp") if one.status == "LISTEN" and one.pid in family]
    assert listening and {one.laddr.ip for one in listening} == {"127.0.0.1"}
    # The token is no business of others on this machine.
    commands = [" ".join(psutil.Process(pid).cmdline()) for pid in family]
    assert not any(token in command for command in commands)
    started.stop()
    assert not [pid for pid in family if psutil.pid_exists(pid)]


@pytest.mark.timeout(120)
def test_terminated_it_leaves_no_server(lab):
    started = lab(str(DISTLAB), "lab", "--no-browser", WORKSHOP_TOKEN="mine")
    assert started.wait_for_url()[1] == "mine"
    children = psutil.Process(started.process.pid).children(recursive=True)
    started.process.terminate()
    started.process.wait(timeout=30)
    assert psutil.wait_procs(children, timeout=10)[1] == []


@pytest.mark.timeout(280)
def test_make_lab_sets_up_trains_and_opens_and_does_it_once(lab):
    (ROOT / ".venv" / ".seen").unlink(missing_ok=True)
    first = lab("make", "lab", "LAB=--no-browser")
    first.wait_for_url()
    assert "Every lesson here can run." in first.said
    assert re.search(r"node2 +│ +3 │ +15,000", first.said), first.said
    first.stop()
    began = time.monotonic()
    second = lab("make", "lab", "LAB=--no-browser")
    second.wait_for_url()
    assert "Training" not in second.said and "Installing" not in second.said
    assert time.monotonic() - began < 30
    second.stop()
