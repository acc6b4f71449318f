"""What a run takes from its hosts' messages, and how it stops them: with hosts that only talk."""

import time
from types import SimpleNamespace

import pytest
from distlab.launch import attempt as module
from distlab.launch.attempt import Attempt


class Hosts:
    """A session whose hosts say what a test gives them, and answer what they are told."""

    def __init__(self, *said: tuple[str, dict], answers: dict[str, dict] | None = None) -> None:
        self.said, self.answers = list(said), answers or {}
        self.told: list[tuple[str, str]] = []
        self.dropped: list[str] = []

    def messages(self, until):
        while time.monotonic() < until:
            yield self.said.pop(0) if self.said else None
            if not self.said:
                time.sleep(0.01)

    def connections(self, *names):
        return [SimpleNamespace(host=SimpleNamespace(name=name), send=self._send(name)) for name in names]

    def _send(self, host):
        def send(do, id):
            self.told.append((host, do))
            if do in self.answers.get(host, {}):
                self.said.append((host, {"id": id, **self.answers[host][do]}))

        return send

    def drop(self, host):
        self.dropped.append(host)


@pytest.fixture(autouse=True)
def patience(monkeypatch):
    for name in ("VERDICT_SECONDS", "STACK_SECONDS", "STOP_SECONDS"):
        monkeypatch.setattr(module, name, 0.2)


def begin(hosts):
    lines = []
    output = SimpleNamespace(hear=lambda *line: lines.append(line))
    jobs = {name: SimpleNamespace(id="this") for name in ("node1", "node2")}
    return Attempt(jobs, output, hosts), lines


def ended(ok=True, id="this", **more):
    return {"event": "ended", "id": id, "ok": ok, **more}


def follow(attempt, seconds=5.0):
    start = time.monotonic()
    attempt.follow(start + seconds)
    return time.monotonic() - start


def test_it_follows_until_the_last_host_has_ended():
    line = {"event": "line", "id": "this", "rank": 1, "stream": "stdout", "text": "hello"}
    attempt, lines = begin(Hosts(("node2", ended()), ("node1", line), ("node1", ended())))
    assert follow(attempt) < 1
    assert lines == [("node1", 1, "stdout", "hello")]
    assert attempt.waiting == [] and attempt.first_failure is None


@pytest.mark.parametrize(
    "message",
    [
        {"event": "failing", "id": "this"},
        {"event": "gone", "status": -9, "said": ""},
        {"event": "broken", "id": "this", "reason": "no such file"},
        ended(ok=False),
    ],
    ids=lambda message: message["event"],
)
def test_after_the_first_failure_the_others_get_a_moment(message):
    attempt, _ = begin(Hosts(("node2", message)))
    assert 0.2 <= follow(attempt) < 2
    assert attempt.first_failure is not None and "node1" in attempt.waiting


def test_a_moment_is_enough_for_another_host_to_tell():
    attempt, _ = begin(Hosts(("node2", ended(ok=False)), ("node1", ended(ok=False))))
    assert follow(attempt) < 0.2
    assert set(attempt.ended) == {"node1", "node2"}


def test_what_an_earlier_job_says_is_not_heard():
    attempt, lines = begin(Hosts(("node1", ended(id="earlier")), ("elsewhere", ended())))
    assert follow(attempt, 0.3) >= 0.3
    assert attempt.waiting == ["node1", "node2"] and not lines


def test_what_comes_after_a_hosts_end_does_not_change_it():
    attempt, _ = begin(Hosts(("node1", ended()), ("node1", ended(ok=False)), ("node2", ended())))
    follow(attempt)
    assert attempt.ended["node1"]["ok"] and attempt.first_failure is None


def test_all_say_where_they_stand_before_any_is_stopped():
    answer = {"stacks": {"event": "stacks"}, "stop": ended(ok=False)}
    hosts = Hosts(answers={"node1": answer, "node2": answer})
    attempt, _ = begin(hosts)
    attempt.stop(hosts.connections("node1", "node2"), stacks=True)
    assert [do for _, do in hosts.told] == ["stacks", "stacks", "stop", "stop"]
    assert attempt.waiting == [] and hosts.dropped == []


def test_who_has_ended_is_not_stopped_and_who_does_not_answer_is_hung_up_on():
    hosts = Hosts(("node1", ended()))
    attempt, _ = begin(hosts)
    attempt.follow(time.monotonic() + 0.1)
    attempt.stop(hosts.connections("node1", "node2"), stacks=False)
    assert hosts.told == [("node2", "stop")] and hosts.dropped == ["node2"]


def test_an_agent_that_is_ending_is_hung_up_on_too():
    hosts = Hosts(("node1", ended(dying=True)), answers={"node2": {"stop": ended(ok=False)}})
    attempt, _ = begin(hosts)
    attempt.follow(time.monotonic() + 0.1)
    attempt.stop(hosts.connections("node1", "node2"), stacks=False)
    assert hosts.dropped == ["node1"]
