"""TensorBoard as `distlab board` starts it."""

import json
import os
import re
import signal
import socket
import subprocess
import sys
import urllib.request
from collections.abc import Callable
from pathlib import Path

import psutil
import pytest
from distlab import report
from distlab.waiting import wait_until

DISTLAB = Path(sys.executable).with_name("distlab")
DIRECT = urllib.request.build_opener(urllib.request.ProxyHandler({}))
# What TensorBoard needs to look again, and what a busy machine adds.
SEEN_SECONDS = 40
RUN = ("run", "ddp", "--hosts", "node1:2", "--", "--limit", "256", "--max-steps", "2", "--no-checkpoint")


class Board:
    """A started `distlab board`, and what it serves."""

    def __init__(self, folder: Path) -> None:
        self.temporary = folder / "temporary"
        self.temporary.mkdir()
        # A person may stand in a folder with files that are called as Python's own.
        (folder / "random.py").write_text("raise SystemExit('taken for random')")
        self.env = {**os.environ, "DISTLAB_RUNS": str(folder / "runs")}
        # A proxy that the network asks for must not stand between TensorBoard and its own data server.
        own = {"TMPDIR": str(self.temporary), "http_proxy": "http://127.0.0.1:9", "https_proxy": "http://127.0.0.1:9"}
        # Few open files, as on many a machine: the data server wants one for each rank.
        few = ("prlimit", "--nofile=100:")
        self.process = subprocess.Popen(
            [*few, DISTLAB, "board", "--port", "0"], cwd=folder, env=self.env | own, stdout=subprocess.PIPE, text=True
        )
        said = ""
        for line in self.process.stdout:
            said += line
            if found := re.search(r"http://[\d.]+:(\d+)/\n", line):
                self.url, self.port = found[0].strip(), int(found[1])
                self.family = psutil.Process(self.process.pid).children(recursive=True)
                return
        raise AssertionError(f"no URL was printed:\n{said}")

    def get(self, path: str) -> bytes:
        with DIRECT.open(self.url + path, timeout=30) as reply:
            return reply.read()

    def tags(self) -> dict[str, list[str]]:
        """Runs and their tags."""
        return {run: sorted(tags) for run, tags in json.loads(self.get("data/plugin/scalars/tags")).items()}

    def wait_for(self, true: Callable[[dict], bool]) -> dict[str, list[str]]:
        wait_until(lambda: true(self.tags()), SEEN_SECONDS, every=0.2)
        return self.tags()


@pytest.fixture
def board(tmp_path):
    started = []

    def start() -> Board:
        started.append(Board(tmp_path))
        return started[-1]

    yield start
    for board in started:
        board.process.kill()
        board.process.wait()
        for left in board.family:
            if left.is_running():
                left.kill()


@pytest.mark.timeout(280)
def test_a_run_is_seen_and_a_deleted_one_disappears(board, tmp_path):
    started = board()
    assert b"<title>TensorBoard</title>" in started.get("") and len(started.get("index.js")) > 1_000_000
    assert started.tags() == {}
    # TensorBoard would do without its data server, but slowly.
    (log,) = started.temporary.glob("distlab-board-*/tensorboard.log")
    assert "Failed to communicate" not in log.read_text()
    soft, hard = started.family[0].rlimit(psutil.RLIMIT_NOFILE)
    assert soft == hard
    done = subprocess.run([DISTLAB, *RUN], env=started.env, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    (run,) = (tmp_path / "runs").iterdir()
    (epoch,) = [record for record in report.read(run) if record["event"] == "epoch" and record["rank"] == 1]
    ranks = [f"{run.name}/rank{rank}" for rank in (0, 1)]
    tags = started.wait_for(lambda tags: all("end/seconds" in tags.get(rank, []) for rank in ranks))
    assert sorted(tags) == ranks
    assert {"epoch/loss", "epoch/val_accuracy", "epoch/images_per_second", "end/steps"} <= set(tags[ranks[1]])
    ((wall, step, loss),) = json.loads(started.get(f"data/plugin/scalars/scalars?tag=epoch/loss&run={ranks[1]}"))
    assert (wall, step) == (pytest.approx(epoch["time"], abs=0.001), 1)
    assert loss == pytest.approx(epoch["loss"], rel=1e-6)
    for path in run.rglob("*.jsonl"):
        path.unlink()
    assert started.wait_for(lambda tags: not tags) == {}


@pytest.mark.timeout(120)
@pytest.mark.parametrize("how", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGKILL])
def test_it_leaves_nothing_and_listens_on_this_machine_only(board, how):
    started = board()
    family = started.family
    assert any("tensorboard.main" in child.cmdline() for child in family)
    pids = [started.process.pid, *(child.pid for child in family)]
    listening = [link for link in psutil.net_connections("tcp") if link.status == "LISTEN" and link.pid in pids]
    assert started.port in {link.laddr.port for link in listening}
    assert {link.laddr.ip for link in listening} <= {"127.0.0.1", "::1"}
    started.process.send_signal(how)
    status = started.process.wait(timeout=30)
    if how != signal.SIGKILL:
        # The command ends after TensorBoard, which ends without it, too, but later.
        assert not psutil.pid_exists(family[0].pid)
    assert psutil.wait_procs(family, timeout=10)[1] == []
    if how != signal.SIGKILL:
        assert status == 0
        assert [path.name for path in started.temporary.glob("distlab-*")] == []


@pytest.mark.timeout(120)
def test_a_tensorboard_that_ends_ends_the_command(board):
    started = board()
    (tensorboard,) = psutil.Process(started.process.pid).children()
    tensorboard.kill()
    assert started.process.wait(timeout=30) == 128 + signal.SIGKILL


def test_a_taken_port_is_one_sentence():
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        said = subprocess.run([DISTLAB, "board", "--port", str(port)], capture_output=True, text=True, timeout=60)
    assert said.returncode == 2 and said.stdout == ""
    assert said.stderr == (
        f"distlab: TensorBoard cannot listen on 127.0.0.1, port {port}: Address already in use. "
        "Give another with --port or --bind\n"
    )
