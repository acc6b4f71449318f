"""Live ranks: cells run in all of them, failures name a rank, and nothing of them is left."""

import re
import stat
import threading
import time

import leftovers
import needs
import psutil
import pytest
import sshd
from distlab import ranks
from distlab.ports import free_port
from distlab.ranks.cell import CellFailed, register, run_cell
from distlab.ranks.live import LiveRanks, RanksError
from distlab.waiting import wait_until
from IPython.core.error import UsageError
from IPython.core.interactiveshell import InteractiveShell

pytestmark = pytest.mark.timeout(150)
HOSTS = "node1:2,node2:2"
ALL = [0, 1, 2, 3]


@pytest.fixture(scope="module")
def live(tmp_path_factory):
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("DISTLAB_RUNS", str(tmp_path_factory.mktemp("runs")))
        with LiveRanks(HOSTS) as found:
            yield found
        assert not found.alive


@pytest.fixture
def say(live, capsys):
    """What a cell shows; it may fail."""

    def run(code: str, chosen: list[int] = ALL, **more: object) -> str:
        capsys.readouterr()
        try:
            run_cell(live, code, chosen, **more)
        finally:
            run.said = capsys.readouterr().out
        return run.said

    return run


def test_each_rank_has_its_place(live):
    assert repr(live) == (
        "4 live ranks on cpu over gloo: no GPU; %%px runs a cell in all of them\n"
        "  node1: rank 0 on cpu, rank 1 on cpu\n"
        "  node2: rank 2 on cpu, rank 3 on cpu"
    )
    assert live.values("(me.rank, me.local_rank, me.host)") == [
        [0, 0, "node1"],
        [1, 1, "node1"],
        [2, 0, "node2"],
        [3, 1, "node2"],
    ]
    assert len(set(live.values("__import__('os').getpid()"))) == 4


def test_a_cell_speaks_by_host_and_rank(live, say):
    said = say("x = torch.full((2,), float(me.rank))\ndist.all_reduce(x)\nprint('one')\nprint('two')\nx")
    assert said == "".join(
        f"{name} | one\n{name} | two\n{name} | tensor([6., 6.])\n"
        for name in ("node1:0", "node1:1", "node2:2", "node2:3")
    )
    assert live.values("x") == [[6.0, 6.0]] * 4
    assert say("import sys; print('warned', file=sys.stderr)", [3]) == "node2:3 | warned\n"


def test_a_warm_cell_takes_milliseconds(live, say):
    say("me.rank")
    best = 9.0
    for _ in range(10):
        started = time.perf_counter()
        say("dist.barrier()")
        best = min(best, time.perf_counter() - started)
    # 30 ms on a quiet machine; a start of ranks takes ten times the limit.
    assert best < 0.3


def test_a_picture_is_passed_on(live, say, monkeypatch):
    shown = []
    monkeypatch.setattr("distlab.ranks.cell.display", lambda data, **more: shown.append((data, more)))
    code = "from IPython.display import Image\nImage(data=b'\\x89PNG\\r\\n\\x1a\\n0000', format='png')"
    assert say(code, [1]) == "node1:1 | a picture\n"
    assert list(shown[0][0]) == ["image/png", "text/plain"] and shown[0][1]["raw"]


def test_the_rank_that_failed_first_is_named(say):
    with pytest.raises(CellFailed, match="^node2:2: ValueError: no luck$") as caught:
        say("import time\nif me.rank == 2: raise ValueError('no luck')\ntime.sleep(0.5)\nif me.rank == 3: 1 / 0")
    assert caught.value._render_traceback_() == ["node2:2: ValueError: no luck"]
    first, *_, last = say.said.splitlines()
    assert first == "node2:2 failed first:"
    assert "----> 2 if me.rank == 2: raise ValueError('no luck')" in say.said
    assert last == "node2:3 then: ZeroDivisionError: division by zero"
    assert "\x1b" not in say.said and "ipyparallel" not in say.said


def test_the_same_error_everywhere_is_shown_once(say):
    with pytest.raises(CellFailed, match="NameError: name 'nothing' is not defined"):
        say("nothing")
    assert say.said.count("NameError") == 1
    assert re.search(r"The same on (node\d:\d, ){2}node\d:\d\.\n$", say.said)


def test_a_value_that_a_rank_lacks(live, say):
    say("mine = 1", [0, 2])
    with pytest.raises(RanksError, match=r"^node1:1 has no 'mine': NameError: name 'mine' is not defined$"):
        live.values("mine")
    say("odd = object()")
    with pytest.raises(RanksError, match="^node1:0 has no 'odd': TypeError: cannot report odd, a object: give numbers"):
        live.values("odd")


def test_a_cell_that_is_not_over_in_time_is_interrupted(say):
    with pytest.raises(CellFailed, match="^node1:0, node2:3 not done after 0.5 s, so all were interrupted$"):
        say("import time\nif me.rank in (0, 3): time.sleep(60)", timeout=0.5)
    assert say("me.rank", [0, 3]) == "node1:0 | 0\nnode2:3 | 3\n"


def test_a_rank_inside_torch_is_named_and_comes_back(live, say, monkeypatch):
    monkeypatch.setattr("distlab.ranks.cell.INTERRUPT_SECONDS", 1.0)
    code = "group = dist.new_group([0, 1], timeout=__import__('datetime').timedelta(seconds=4))"
    say(code)
    started = time.monotonic()
    with pytest.raises(CellFailed, match="^node1:1 cannot be interrupted inside torch and will be back when"):
        say("if me.rank == 1: dist.recv(torch.zeros(1), 0, group=group)", timeout=0.3)
    with pytest.raises(CellFailed, match="^node1:1 still at an earlier cell after 0.3 s$"):
        say("me.rank", [1], timeout=0.3)
    # The next cell waits for it.
    assert say("me.rank", [1]) == "node1:1 | 1\n"
    assert time.monotonic() - started < 12


def test_a_cell_behind_one_that_fails_runs_all_the_same(live):
    live.submit("import time\ntime.sleep(0.3)\n1 / 0", [1])
    behind = live.submit("me.rank + 40", [1])
    assert live.wait(behind, 20) == []
    assert behind[1].metadata["execute_result"]["data"]["text/plain"] == "41"
    assert live.values("me.rank") == ALL


def test_long_cells_say_who_is_at_it(say, monkeypatch):
    monkeypatch.setattr("distlab.ranks.cell.REMIND_SECONDS", 0.4)
    said = say("import time\ntime.sleep(1.0 if me.rank == 1 else 0)")
    assert set(said.splitlines()) == {"waiting for node1:1"}


@pytest.fixture
def own(tmp_path, monkeypatch, mark):
    """Live ranks of the test's own, by the functions that a notebook calls."""
    monkeypatch.setenv(leftovers.MARK, mark)
    yield
    ranks.stop()


def test_a_death_names_the_rank_and_a_start_begins_anew(own, mark, tmp_path, capsys):
    first = ranks.start("node1:1,node2:1")
    assert ranks.start("node1:1,node2:1") is first
    # No key stays on disk once all are connected.
    assert not list((tmp_path / "runs").glob(".live-*"))
    run_cell(first, "kept = 5", [0, 1])
    with pytest.raises(RanksError, match=r"^rank 1 on node2 was killed by SIGKILL.* ranks\.start\(\) starts all ranks"):
        run_cell(first, "import os, time\nif me.rank: os.kill(os.getpid(), 9)\ntime.sleep(30)", [0, 1])
    with pytest.raises(RanksError, match="^rank 1 on node2 was killed"):
        ranks.values("kept")
    capsys.readouterr()
    second = ranks.start("node1:1,node2:1")
    assert capsys.readouterr().out.startswith("rank 1 on node2 was killed by SIGKILL")
    assert second is not first
    with pytest.raises(RanksError, match="node1:0 has no 'kept'"):
        ranks.values("kept")
    # On other hosts it is a new job, and no death is reported.
    third = ranks.start("node1:1")
    assert third.size == 1 and capsys.readouterr().out == ""
    ranks.stop()
    leftovers.assert_nothing_left(mark, 3.0)
    with pytest.raises(RanksError, match=r"^no live ranks: ranks\.start\(\) starts them$"):
        ranks.values("kept")


def test_ranks_that_do_not_come_up_say_why(own, mark, monkeypatch):
    monkeypatch.setenv("DISTLAB_BACKEND", "nccl")
    with pytest.raises(RanksError, match="DISTLAB_BACKEND=nccl needs a GPU for every rank"):
        ranks.start("node1:2")
    leftovers.assert_nothing_left(mark, 3.0)


def test_keys_are_for_their_owner_alone_and_the_controller_listens_on_loopback_alone(own, mark, tmp_path):
    found = []

    def modes() -> list[int]:
        return [stat.S_IMODE(path.stat().st_mode) for path in (tmp_path / "runs").glob(".live-*/security")]

    watcher = threading.Thread(target=lambda: found.extend(wait_until(modes, 60, every=0.005)))
    watcher.start()
    ranks.start("node1:1,node2:1")
    watcher.join()
    assert found == [0o700]
    sockets = [
        connection for pid in leftovers.marked(mark) for connection in psutil.Process(pid).net_connections("inet")
    ]
    addresses = [connection.laddr.ip for connection in sockets if connection.status == psutil.CONN_LISTEN]
    assert len(addresses) > 5 and {address.split(".")[0] for address in addresses} == {"127"}


def test_a_notebook_with_live_ranks(notebook, mark):
    assert notebook.run("from distlab import ranks\nranks.start('node1:1,node2:1')")["error"] == ""
    assert notebook.run("%%px\nme.rank * 10")["stream"] == "node1:0 | 0\nnode2:1 | 10\n"
    assert notebook.run("%px me.host")["stream"] == "node1:0 | 'node1'\nnode2:1 | 'node2'\n"
    assert notebook.run("%%px --host node2\nme.rank")["stream"] == "node2:1 | 1\n"
    said = notebook.run("%%px\n1 / 0")
    assert said["error"] == "CellFailed" and said["shown"].endswith("ZeroDivisionError: division by zero")

    # The notebook's stop button reaches the ranks, which live on with their variables.
    notebook.run("%%px\nkept = me.rank + 1")
    cell = notebook.start("%%px\nimport time\nwhile True: time.sleep(0.05)")
    time.sleep(1.0)
    started = time.monotonic()
    notebook.manager.interrupt_kernel()
    assert notebook.outputs(cell, "", 20)["error"] == "KeyboardInterrupt"
    assert time.monotonic() - started < 4.0
    # They live on, too, when a cell of the notebook's own is stopped.
    cell = notebook.start("import time; time.sleep(60)")
    time.sleep(0.5)
    notebook.manager.interrupt_kernel()
    assert notebook.outputs(cell, "", 20)["error"] == "KeyboardInterrupt"
    assert notebook.run("%%px\nkept")["stream"] == "node1:0 | 1\nnode2:1 | 2\n"

    # A run beside them does not disturb them, and end() says that all is gone.
    assert (
        "True"
        in notebook.run("from distlab import run\nprint(run('env_report', hosts='node1:1', quiet=True).ok)")["stream"]
    )
    assert notebook.run("%%px\nkept")["stream"] == "node1:0 | 1\nnode2:1 | 2\n"
    assert len(leftovers.marked(mark)) > 4
    said = notebook.run("from distlab.lesson import end\nend()")["stream"]
    assert said == "✓ nothing that this lesson started is still running: True\n"
    assert set(leftovers.marked(mark)) == {notebook.manager.provisioner.pid}


def test_a_killed_kernel_takes_its_live_ranks_with_it(notebook, mark):
    assert notebook.run("from distlab import ranks\nranks.start('node1:1,node2:1')")["error"] == ""
    assert len(leftovers.marked(mark)) > 4
    notebook.manager.signal_kernel(9)
    leftovers.assert_nothing_left(mark, 5.0)


def test_what_px_takes(live, capsys):
    shell = InteractiveShell.instance()
    try:
        register(lambda: live)
        px = shell.find_cell_magic("px")
        px("--ranks 2", "me.rank")
        assert capsys.readouterr().out == "node2:2 | 2\n"
        for line, said in {
            "--ranks 0,7": "there are ranks 0 to 3",
            "--ranks one": "write numbers with commas, such as --ranks 0,2",
            "--ranks 0 --host node1": "takes --ranks or --host, not both",
            "--targets 0": "unrecognized arguments: --targets 0",
        }.items():
            with pytest.raises(UsageError, match=re.escape(said)):
                px(line, "me.rank")
        with pytest.raises(RanksError, match="^no host 'node3': there are node1, node2$"):
            px("--host node3", "me.rank")
    finally:
        InteractiveShell.clear_instance()


FIRST, SECOND = "127.0.0.2", "127.0.0.3"


def test_live_ranks_over_ssh(own, tmp_path, monkeypatch, mark):
    needs.programs(needs.SSHD, "ssh")
    sshd.write_keys(tmp_path)
    port = free_port(FIRST)
    server = sshd.start(tmp_path, [FIRST, SECOND], port)
    try:
        monkeypatch.setenv("DISTLAB_SSH", sshd.client_words(tmp_path, port))
        ranks.start(f"{FIRST}:1,{SECOND}:1")
        assert ranks.values("(me.rank, me.host)") == [[0, FIRST], [1, SECOND]]
        ranks.stop()
        leftovers.assert_nothing_left(mark, 5.0)
    finally:
        server.terminate()
        server.wait(5)
