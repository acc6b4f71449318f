"""JupyterLab as `distlab lab` and `make lab` start it."""

import json
import re
import socket
import time
import urllib.error
import urllib.request

import psutil
import pytest
from laboratory import DISTLAB, ROOT, starting

DIRECT = urllib.request.build_opener(urllib.request.ProxyHandler({}))


@pytest.fixture
def lab(tmp_path):
    with starting(tmp_path) as start:
        yield start


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
    assert "Start_Here.ipynb" in [file["name"] for file in contents["content"]]
    family = [
        started.process.pid,
        *(child.pid for child in psutil.Process(started.process.pid).children(recursive=True)),
    ]
    listening = [link for link in psutil.net_connections("tcp") if link.status == "LISTEN" and link.pid in family]
    assert listening and {link.laddr.ip for link in listening} == {"127.0.0.1"}
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
