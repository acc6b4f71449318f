"""An agent sees its ranks end, also those that end before they can say who they are."""

import json
import subprocess
import sys

import pytest
from distlab.agent.pulse import Pulse


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
    assert not told and not pulse.vanished(0)


def test_a_rank_that_died_and_was_buried_while_others_were_forked(pulse, told, sleeper):
    pulse.born({2: sleeper.pid, 3: gone()})
    pulse.freeze()
    assert told == ["failing"]
    assert pulse.vanished(3) and not pulse.vanished(2)


def test_a_rank_that_says_how_it_ended_has_not_vanished(pulse, told, tmp_path):
    (tmp_path / "rank1.ending.json").write_text(json.dumps({"rank": 1, "how": "completed", "status": 0}))
    pulse.born({1: gone()})
    pulse.freeze()
    assert not told and not pulse.vanished(1)


def test_only_ranks_that_are_ready_for_the_signal_are_asked_for_their_stack(pulse, sleeper, tmp_path):
    pulse.born({0: sleeper.pid})
    assert pulse.running() == {}
    (tmp_path / "rank0.pid").write_text(str(sleeper.pid))
    pulse.freeze()
    assert pulse.running() == {0: sleeper.pid}
