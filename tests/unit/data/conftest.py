"""Everything here works in a folder of its own and without a network."""

import gzip
import hashlib
import os
import subprocess
import sys
import threading
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import numpy as np
import pytest
from data_helpers import idx
from distlab.data import fashion

COUNTS = {"train": 40, "t10k": 20}


@pytest.fixture(autouse=True)
def root(tmp_path, monkeypatch):
    """The data folder of one test, without network."""
    folder = tmp_path / "data"
    monkeypatch.setenv("DISTLAB_DATA", str(folder))
    monkeypatch.setenv("DISTLAB_OFFLINE", "1")
    monkeypatch.setattr(fashion, "INSTALLED", tmp_path / "not-installed" / "fashion-mnist")
    for name in ("DISTLAB_PREPARE_TIMEOUT", "RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE"):
        monkeypatch.delenv(name, raising=False)
    return folder


@pytest.fixture
def little(tmp_path, monkeypatch):
    """A folder with a small set in Fashion-MNIST's four packed files, taken for the real one."""
    folder = tmp_path / "little"
    folder.mkdir()
    random = np.random.default_rng(7)
    sums = {}
    for name in fashion.SHA256:
        count = COUNTS[name.split("-")[0]]
        shape = (count, 28, 28) if "images" in name else (count,)
        content = idx(random.integers(0, 256 if "images" in name else 10, shape))
        sums[name] = hashlib.sha256(content).hexdigest()
        (folder / f"{name}.gz").write_bytes(gzip.compress(content, mtime=0))
    monkeypatch.setattr(fashion, "SHA256", sums)
    return folder


class Counting(SimpleHTTPRequestHandler):
    """Serves a folder and remembers which files were asked for."""

    def do_GET(self):
        self.server.asked.append(self.path)
        super().do_GET()

    def log_message(self, *values):
        pass


@pytest.fixture
def serve():
    """serve(folder) -> server of that folder on 127.0.0.1, with `.address` and `.asked`."""
    servers = []

    def start(folder: Path) -> ThreadingHTTPServer:
        server = ThreadingHTTPServer(("127.0.0.1", 0), partial(Counting, directory=str(folder)))
        server.asked, server.address = [], f"http://127.0.0.1:{server.server_port}/"
        threading.Thread(target=server.serve_forever, daemon=True).start()
        servers.append(server)
        return server

    yield start
    for server in servers:
        server.shutdown()
        server.server_close()


@pytest.fixture
def python(tmp_path):
    """python(code, ...) -> a started Python process running that code; killed at the end of the test."""
    started = []

    def start(code: str, *arguments: object, **variables: str) -> subprocess.Popen:
        script = tmp_path / f"script{len(started)}.py"
        script.write_text(code)
        process = subprocess.Popen(
            [sys.executable, str(script), *map(str, arguments)],
            env={**os.environ, **variables},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        started.append(process)
        return process

    yield start
    for process in started:
        process.kill()
        process.communicate()
