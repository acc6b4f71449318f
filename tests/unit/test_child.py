"""A process that is served until it ends, or until somebody says so."""

import os
import signal
import subprocess
import sys
import time

import pytest
from distlab.child import end_child, interrupted_by_signals, serve_child

STUBBORN = """import signal, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
print("deaf", flush=True)
time.sleep(60)"""


class Started:
    """Starts Python with some code, and keeps what it started."""

    def __init__(self, code: str) -> None:
        self.code, self.child = code, None

    def __call__(self) -> subprocess.Popen:
        self.child = subprocess.Popen([sys.executable, "-S", "-c", self.code], stdout=subprocess.PIPE, text=True)
        return self.child


@pytest.fixture
def sleeper():
    start = Started("import time; time.sleep(60)")
    yield start
    start.child.kill()
    start.child.wait()
    start.child.stdout.close()


def test_what_ends_by_itself_has_its_status():
    looks = []
    start = Started("import sys, time; time.sleep(0.3); sys.exit(7)")
    assert serve_child(start, lambda child: looks.append(child) or 0.02, "it") == 7
    assert len(looks) > 3 and set(looks) == {start.child}
    assert serve_child(start, lambda child: None, "it") == 7


@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
@pytest.mark.parametrize("pause", [0.02, None])
def test_a_signal_ends_it(sleeper, capsys, how, pause):
    def look(_):
        # A moment later: the signal comes while nobody looks.
        subprocess.Popen(["/bin/sh", "-c", f"sleep 0.2; kill -{int(how)} {os.getpid()}"])
        return pause

    before = [signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGHUP)]
    assert serve_child(sleeper, look if pause is None else once(look), "The sleeper") is None
    assert sleeper.child.returncode == -signal.SIGTERM
    assert capsys.readouterr().out == "\nThe sleeper stops\n"
    assert [signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGHUP)] == before


def once(look):
    """Calls `look` at the first time only."""
    pauses = []
    return lambda child: pauses[0] if pauses else pauses.append(look(child)) or pauses[0]


def test_an_error_while_it_is_looked_after_ends_it(sleeper):
    with pytest.raises(ZeroDivisionError):
        serve_child(sleeper, lambda child: 1 / 0, "it")
    assert sleeper.child.returncode == -signal.SIGTERM


def test_a_second_signal_hurries_and_leaves_nothing(capsys):
    # As Apptainer does it, which hands on what its whole group got already.
    start = Started(STUBBORN)

    def look(child):
        assert child.stdout.readline() == "deaf\n"
        subprocess.Popen(["/bin/sh", "-c", f"sleep 0.2; kill -2 {os.getpid()}; sleep 0.3; kill -2 {os.getpid()}"])

    began = time.monotonic()
    assert serve_child(start, look, "It") is None
    assert start.child.returncode == -signal.SIGKILL and time.monotonic() - began < 6
    assert capsys.readouterr().out == "\nIt stops\n"


def test_the_deaf_are_killed_and_the_ended_left_in_peace():
    child = Started(STUBBORN)()
    assert child.stdout.readline() == "deaf\n"
    began = time.monotonic()
    end_child(child, 0.2)
    assert child.returncode == -signal.SIGKILL and time.monotonic() - began < 5
    end_child(child, 0.2)
    assert child.returncode == -signal.SIGKILL
    child.stdout.close()


@pytest.fixture
def handlers():
    """Sets handlers of signals, which are as before when the test is done."""
    before = {}

    def set_handler(number: int, handler: object) -> None:
        before.setdefault(number, signal.signal(number, handler))

    yield set_handler
    for number, handler in before.items():
        signal.signal(number, handler)


def test_what_nohup_ignores_stays_ignored(handlers):
    handlers(signal.SIGHUP, signal.SIG_IGN)
    with interrupted_by_signals():
        assert signal.getsignal(signal.SIGHUP) == signal.SIG_IGN
        with pytest.raises(KeyboardInterrupt):
            os.kill(os.getpid(), signal.SIGTERM)


def test_afterwards_signals_do_what_they_did(handlers):
    seen = []
    handlers(signal.SIGTERM, lambda *_: seen.append("ours"))
    with interrupted_by_signals():
        pass
    os.kill(os.getpid(), signal.SIGTERM)
    assert seen == ["ours"]
