"""mpirun and horovodrun start the same ranks as torchrun, and leave as little behind."""

import os
import shutil
import signal
import socket
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import leftovers
import needs
import psutil
import pytest
from distlab.agent import placeholder
from distlab.horovod_wheel import state
from distlab.hosts import parse
from distlab.launch import HostError, ScriptError, run
from distlab.launchers import horovodrun
from distlab.runs import WORKSPACE
from driver import Driver, later
from running import MarkedSession, Runner, seen_by

pytestmark = pytest.mark.timeout(120)

LAUNCHERS = ("mpirun", "horovodrun", "horovodrun-mpi")
SECRET = "as-secret-as-can-be"
# Enough for cold starts on two busy cores.
START = 60


@pytest.fixture(autouse=True)
def _horovod():
    needs.horovod()


@pytest.mark.parametrize("launcher", LAUNCHERS)
def test_the_same_ranks_on_the_same_hosts(warm, launcher):
    result = warm("who", "--word", "two words", hosts="node1:1,node2:2", launcher=launcher, timeout=START)
    seen = seen_by(result)
    assert [(rank["host"], rank["rank"], rank["local_rank"], rank["host_index"], rank["sum"]) for rank in seen] == [
        ("node1", 0, 0, 0, 7.0),
        ("node2", 1, 0, 1, 7.0),
        ("node2", 2, 1, 1, 7.0),
    ]
    assert all(rank["arguments"] == ["--word", "two words"] and rank["cwd"] == os.getcwd() for rank in seen)
    assert {rank["interface"] for rank in seen} == {"lo"}
    assert [(end.rank, end.host, end.local_rank, end.how, end.status) for end in result.ranks] == [
        (0, "node1", 0, "completed", 0),
        (1, "node2", 0, "completed", 0),
        (2, "node2", 1, "completed", 0),
    ]
    assert result.launcher == launcher
    assert [Path(end.log).read_text().strip() for end in result.ranks] == [result.text(rank) for rank in range(3)]


@pytest.mark.parametrize("launcher", LAUNCHERS)
def test_the_command_that_is_shown_can_be_typed(warm, launcher):
    result = warm("hello", hosts="node1:1,node2:1", launcher=launcher, timeout=START)
    (command,) = result.command.values()
    environ = {**os.environ, "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}
    done = subprocess.run(command, shell=True, env=environ, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    assert "rank 0 of 2" in done.stdout and "rank 1 of 2" in done.stdout


@pytest.fixture(scope="module")
def special_session(tmp_path_factory):
    """Agents that find no ssh on PATH and have a secret in their environment."""
    programs = tmp_path_factory.mktemp("programs")
    for program in Path("/usr/bin").iterdir():
        if program.name not in ("ssh", "rsh"):
            (programs / program.name).symlink_to(program)
    with MarkedSession() as session:
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("PATH", f"{Path(sys.executable).parent}:{programs}")
            patch.setenv("JUPYTER_TOKEN", SECRET)
            session.warm(parse("node1:1,node2:1"))
        yield session
    leftovers.assert_nothing_left(session.mark, 1.0)


@pytest.fixture
def special(special_session, tmp_path, monkeypatch):
    monkeypatch.setenv("DISTLAB_RUNS", str(tmp_path / "runs"))
    yield Runner(special_session)
    special_session.assert_idle()


@pytest.mark.parametrize("launcher", LAUNCHERS)
def test_hosts_on_this_machine_need_no_ssh(special, launcher):
    (agent, _) = special.session.pids.values()
    assert shutil.which("ssh", path=psutil.Process(agent).environ()["PATH"]) is None
    assert special("hello", hosts="node1:1,node2:1", launcher=launcher, timeout=START).ok


@pytest.mark.parametrize("launcher", LAUNCHERS)
def test_a_cold_start_gives_the_same(warm, launcher):
    result = warm("who", hosts="node1:1,node2:1", launcher=launcher, timeout=START, cold=True)
    assert [(rank["host"], rank["rank"], rank["sum"]) for rank in seen_by(result)] == [
        ("node1", 0, 3.0),
        ("node2", 1, 3.0),
    ]


def test_environment_of_each_host_and_of_the_call(warm, monkeypatch):
    monkeypatch.setenv("DISTLAB_ASKED_BY", "the caller")
    result = warm("who", hosts="node1:1,node2:1", launcher="mpirun", timeout=START, threads=3, env={"DISTLAB_ASKED": 1})
    for rank in seen_by(result):
        assert (rank["threads"], rank["omp"]) == (3, "3")
        assert rank["asked"] == {"DISTLAB_ASKED_BY": "the caller", "DISTLAB_ASKED": "1"}


@pytest.mark.parametrize("launcher", LAUNCHERS)
def test_no_secret_is_on_a_command_line(special, launcher):
    """Anyone on a host can read command lines, and horovodrun repeats its environment there."""
    (agent, _) = special.session.pids.values()
    assert psutil.Process(agent).environ()["JUPYTER_TOKEN"] == SECRET
    seen: list[str] = []

    def look() -> None:
        seen.extend(leftovers.marked(special.session.mark).values())

    thread = later(lambda: placeholders_of(special) >= 2, look)
    words = ("hang", "--at", "bare", "--who", "0", "1", "--for", "2")
    special("misbehave", *words, hosts="node1:1,node2:1", launcher=launcher, timeout=START)
    thread.join(30)
    # With --mpi, horovodrun replaces itself by mpirun.
    assert any(("horovodrun" if launcher == "horovodrun" else "mpirun") in command for command in seen)
    assert not [command for command in seen if SECRET in command]


def placeholders_of(runner) -> int:
    """How many ranks a launcher has started."""
    commands = leftovers.marked(runner.session.mark).values()
    return sum(command.split()[1:2] == ["-S"] and "placeholder.py" in command for command in commands)


# -- a rank fails ---------------------------------------------------------------------------------


@pytest.mark.parametrize("launcher", LAUNCHERS)
@pytest.mark.parametrize(
    ("words", "expected", "how"),
    [
        (("raise", "--who", "2"), "rank 2 on node2 raised KeyError: 'weight of rank 2'\nTraceback", "raised"),
        (("SIGKILL", "--who", "1", "--others", "sleep"), "rank 1 on node1 was killed by SIGKILL", "killed"),
        (("exit3", "--who", "0", "--at", "bare", "--others", "sleep"), "rank 0 on node1 ended with status 3", "left"),
    ],
    ids=["raises", "killed", "leaves"],
)
def test_the_right_rank_is_blamed_soon(warm, launcher, words, expected, how):
    failure = warm.fails("misbehave", *words, hosts="node1:2,node2:1", launcher=launcher, timeout=START)
    assert failure.message.startswith(expected)
    assert failure.message.count("Traceback") <= 1
    for word in ("closed by peer", "mpirun has exited", "SIGTERM", "Primary job"):
        assert word not in failure.message + failure.said
    assert failure.after < 5
    assert failure.how()[int(words[2])] == how


@pytest.mark.parametrize("launcher", LAUNCHERS)
def test_an_import_fails_before_the_rank_joins(warm, launcher):
    words = ("import", "--at", "bare", "--who", "1", "--others", "finish")
    failure = warm.fails("misbehave", *words, hosts="node1:1,node2:1", launcher=launcher, timeout=START)
    assert failure.message.startswith("rank 1 on node2 raised ModuleNotFoundError: No module named 'no_such_module")


@pytest.mark.parametrize("launcher", LAUNCHERS)
def test_a_deadline_shows_where_ranks_stood(warm, launcher):
    failure = warm.fails("misbehave", "hang", "--who", "1", hosts="node1:1,node2:1", launcher=launcher, timeout=12)
    assert failure.message.startswith("not done after 12 s: rank 0 on node1, 1 on node2 still ran")
    assert "--- rank 1 on node2 stood here:" in failure.message and "in hang_here" in failure.message
    assert failure.seconds < 17


def test_ranks_that_ignore_signals_and_their_children_end(warm):
    words = ("hang", "--who", "0", "1", "--deaf", "1")
    failure = warm.fails("misbehave", *words, hosts="node1:1,node2:1", launcher="horovodrun", timeout=10)
    assert len(failure.result.stacks) == 2 and failure.seconds < 15


# -- Horovod's own group --------------------------------------------------------------------------


@pytest.mark.parametrize("launcher", LAUNCHERS)
def test_horovod_adds_up_over_all_ranks(warm, launcher):
    result = warm("add_with_horovod", "all", "0", launcher=launcher, timeout=START)
    backend = "gloo" if launcher == "horovodrun" else "mpi"
    for rank, (host, local) in enumerate([("node1", 0), ("node1", 1), ("node2", 0), ("node2", 1)]):
        assert f"sum [15.0, 15.0, 15.0] {host} {local} {backend}" in result.text(rank)


@pytest.mark.parametrize("launcher", LAUNCHERS)
@pytest.mark.parametrize(
    ("mode", "expected"),
    [("raise", "rank 1 on node2 raised ValueError: rank 1 has no gradients\n"), ("kill", "rank 1 on node2 was killed")],
)
def test_a_rank_of_horovod_fails_and_not_its_peers(warm, launcher, mode, expected):
    failure = warm.fails("add_with_horovod", mode, "1", hosts="node1:1,node2:1", launcher=launcher, timeout=START)
    assert failure.message.startswith(expected)
    assert failure.after < 6


def test_a_rank_of_horovod_that_stays_away_is_seen_at_the_deadline(warm):
    hosts = "node1:1,node2:1"
    failure = warm.fails("add_with_horovod", "hang", "1", hosts=hosts, launcher="horovodrun", timeout=12)
    assert "in allreduce" in failure.message.partition("--- rank 1")[0]


def test_horovod_under_torchrun_says_how_to_start_it(warm):
    failure = warm.fails("add_with_horovod", "all", "0", hosts="node1:2", timeout=START)
    assert (
        "raised RuntimeError: torchrun started these 2 ranks, of which Horovod knows nothing: start it with"
        in failure.message
    )


def test_horovod_alone_is_a_world_of_one(tmp_path):
    script = WORKSPACE / "distlab/scripts/horovod_ddp.py"
    words = [sys.executable, str(script), "--limit", "600", "--no-checkpoint"]
    environ = {**os.environ, "DISTLAB_RUNS": str(tmp_path)}
    done = subprocess.run(words, env=environ, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0 and "epoch 1: loss" in done.stdout, done.stderr


def test_ddp_trains_the_same_under_mpirun(warm):
    """Lab 9 of the seed: nobody changes ddp.py for MPI."""
    words = ("--limit", "600", "--no-checkpoint")
    ends = [
        warm(WORKSPACE / "distlab/scripts/ddp.py", *words, launcher=launcher, timeout=START).last("epoch")[0]
        for launcher in ("torchrun", "mpirun")
    ]
    assert ends[0]["loss"] == pytest.approx(ends[1]["loss"], abs=1e-5)
    assert ends[0]["val_images"] == ends[1]["val_images"]


# -- whoever is killed or interrupted, nothing is left ---------------------------------------------


@pytest.mark.parametrize("launcher", LAUNCHERS)
def test_a_killed_launcher_is_named(warm, launcher):
    def has_ranks(process: psutil.Process) -> bool:
        return any("placeholder.py" in " ".join(child.cmdline()) for child in process.children(recursive=True))

    def strike() -> None:
        (command,) = [
            process for process in psutil.Process(warm.session.pids["node1"]).children() if has_ranks(process)
        ]
        command.kill()

    thread = later(lambda: placeholders_of(warm) >= 2, strike, after=1.0)
    words = ("hang", "--at", "bare", "--who", "0", "1")
    failure = warm.fails("misbehave", *words, hosts="node1:1,node2:1", launcher=launcher, timeout=START)
    thread.join(30)
    assert failure.message.startswith(f"node1: {launcher} was killed by SIGKILL")


DRIVER_WORDS = ("hang", "--who", "0", "1", "--at", "bare", "--deaf", "0")


@pytest.mark.parametrize("launcher", LAUNCHERS)
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGKILL])
def test_an_interrupted_or_killed_notebook_leaves_nothing(mark, temporary, launcher, number):
    driver = Driver(mark, *DRIVER_WORDS, hosts="node1:1,node2:1", how=launcher)
    driver.wait_for("| started", 2)
    assert len(doors(temporary)) == 2
    driver.end_by(number, within=8)
    leftovers.assert_nothing_left(mark, 5.0)
    assert doors(temporary) == []


def doors(folder: Path) -> list[Path]:
    """The doors of agents that have their folders here; other tests may have some of their own."""
    found = []
    for path in Path("/tmp").glob(f"distlab-{os.getuid()}-*"):
        with suppress(OSError):
            if path.readlink().is_relative_to(folder):
                found.append(path)
    return found


# -- what cannot start ------------------------------------------------------------------------------


def test_an_unknown_launcher():
    with pytest.raises(ScriptError, match="launcher 'slurm' is unknown: use torchrun or horovodrun or mpirun"):
        run("env_report", launcher="slurm")


@pytest.mark.parametrize("launcher", LAUNCHERS)
def test_a_host_that_cannot_be_reached_is_named_before_anything_starts(tmp_path, monkeypatch, launcher):
    monkeypatch.setenv("DISTLAB_RUNS", str(tmp_path))
    monkeypatch.setenv("DISTLAB_SSH", "false")
    with MarkedSession() as session, pytest.raises(HostError, match=r"127\.0\.0\.3 could not join"):
        run("env_report", hosts="127.0.0.3:2", launcher=launcher, session=session, timeout=START)


def test_a_port_that_is_taken_is_another_one(warm):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        result = warm("who", hosts="node1:1,node2:1", launcher="mpirun", master_port=port, timeout=START)
    assert f"port {port} is taken on node1; using " in warm.said
    assert f"MASTER_PORT={port} " not in result.command["node1"]


def test_horovod_that_is_not_built_is_told_before_anything_starts(monkeypatch):
    monkeypatch.setattr(horovodrun, "find_spec", lambda name: None)
    monkeypatch.setattr(state, "installed", lambda: None)
    with pytest.raises(ScriptError, match="horovodrun is part of Horovod, which is .*make horovod"):
        run("env_report", launcher="horovodrun")


def test_a_rank_without_an_agent_says_on_which_host(tmp_path):
    environ = {**os.environ, "OMPI_COMM_WORLD_RANK": "1"}
    code = (
        f"import sys; sys.path.insert(0, {str(WORKSPACE)!r}); from distlab.agent import placeholder; "
        "placeholder.DOOR_SECONDS = 0.2; sys.argv[1:] = ['0000', 'node1:1,node2:1', 'OMPI_COMM_WORLD_RANK']; "
        "sys.exit(placeholder.main())"
    )
    done = subprocess.run([sys.executable, "-S", "-c", code], env=environ, capture_output=True, text=True, timeout=20)
    assert done.returncode == placeholder.NO_AGENT
    assert done.stderr == "rank 1 finds no agent of this job on node2\n"


def test_a_door_that_somebody_else_made_is_not_used(monkeypatch):
    monkeypatch.setattr(placeholder, "DOOR_SECONDS", 0.2)
    door = Path(placeholder.door("ffff", "node1"))
    door.symlink_to("/")
    try:
        os.lchown(door, 12345, 12345)
        assert placeholder.open_door("ffff", "node1") is None
    finally:
        door.unlink()
