"""An agent sees its ranks end, also those that end before they can say who they are."""

import json
import multiprocessing
import signal
import subprocess
import sys
import time

import pytest
from distlab.agent.pulse import Pulse
from distlab.waiting import wait_until


@pytest.fixture
def told():
    return []


@pytest.fixture
def pulse(tmp_path, told):
    pulse = Pulse(tmp_path, 2, lambda: told.append("failing"))
    pulse.start()
    yield pulse
    pulse.freeze()


@pytest.fixture
def sleeper():
    process = subprocess.Popen([sys.executable, "-S", "-c", "import time; time.sleep(60)"])
    yield process
    process.kill()
    process.wait()


def gone() -> int:
    """Process id of a process that has ended and was buried."""
    process = subprocess.Popen([sys.executable, "-S", "-c", ""])
    process.wait()
    return process.pid


def test_ranks_that_live_are_no_failure(pulse, told, sleeper):
    pulse.born({0: sleeper.pid})
    pulse.freeze()
    assert not told and not pulse.vanished(0, {})


def test_a_rank_that_died_and_was_buried_while_others_were_forked(pulse, told, sleeper):
    pulse.born({2: sleeper.pid, 3: gone()})
    pulse.freeze()
    assert told == ["failing"]
    assert pulse.vanished(3, {}) and not pulse.vanished(2, {})


def test_a_rank_that_says_how_it_ended_has_not_vanished(pulse, told, tmp_path):
    (tmp_path / "rank1.ending.json").write_text(json.dumps({"rank": 1, "how": "completed", "status": 0}))
    pulse.born({1: gone()})
    pulse.freeze()
    assert not told and not pulse.vanished(1, {})


def test_only_ranks_that_are_ready_for_the_signal_are_asked_for_their_stack(pulse, sleeper, tmp_path):
    pulse.born({0: sleeper.pid})
    assert pulse.running() == {}
    (tmp_path / "rank0.pid").write_text(str(sleeper.pid))
    pulse.freeze()
    assert pulse.running() == {0: sleeper.pid}


def test_of_two_that_were_terminated_at_once_the_launcher_knows_the_first(pulse, told):
    forks = [multiprocessing.get_context("fork").Process(target=time.sleep, args=(60,)) for _ in range(2)]
    for fork in forks:
        fork.start()
    pulse.born({rank: fork.pid for rank, fork in enumerate(forks)})
    for fork in forks:
        fork.terminate()
    for fork in forks:
        fork.join()
    pulse.freeze()
    assert told == ["failing"]
    failures = {1: -signal.SIGTERM}
    assert pulse.status(1, failures) == -signal.SIGTERM and pulse.vanished(1, failures)
    assert pulse.status(0, failures) is None and not pulse.vanished(0, failures)


def test_the_end_of_a_forked_rank_is_seen_without_a_look(pulse, told, monkeypatch):
    monkeypatch.setattr("distlab.agent.pulse.pause", lambda age: 60.0)
    fork = multiprocessing.get_context("fork").Process(target=time.sleep, args=(60,))
    fork.start()
    pulse.born({0: fork.pid})
    time.sleep(0.3)
    fork.kill()
    fork.join()
    wait_until(lambda: told, 5, every=0.01)
    assert told == ["failing"]
