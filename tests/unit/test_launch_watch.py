"""What a run takes from its hosts' messages, and how it stops them: with hosts that only talk."""

import time
from types import SimpleNamespace

import pytest
from distlab.launch import watch as module
from distlab.launch.watch import Watch


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
        return [SimpleNamespace(host=SimpleNamespace(name=one), send=self._send(one)) for one in names]

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


def watching(hosts):
    lines = []
    voice = SimpleNamespace(hear=lambda *line: lines.append(line))
    jobs = {name: SimpleNamespace(id="this") for name in ("node1", "node2")}
    return Watch(jobs, voice, hosts), lines


def ended(ok=True, id="this", **more):
    return {"event": "ended", "id": id, "ok": ok, **more}


def follow(one, seconds=5.0):
    start = time.monotonic()
    one.follow(start + seconds)
    return time.monotonic() - start


def test_it_follows_until_the_last_host_has_ended():
    line = {"event": "line", "id": "this", "rank": 1, "stream": "stdout", "text": "hello"}
    one, lines = watching(Hosts(("node2", ended()), ("node1", line), ("node1", ended())))
    assert follow(one) < 1
    assert lines == [("node1", 1, "stdout", "hello")]
    assert one.waiting == [] and one.first_failure is None


@pytest.mark.parametrize(
    "message",
    [
        {"event": "failing", "id": "this"},
        {"event": "gone", "status": -9, "said": ""},
        {"event": "broken", "id": "this", "reason": "no such file"},
        ended(ok=False),
    ],
    ids=lambda one: one["event"],
)
def test_after_the_first_failure_the_others_get_a_moment(message):
    one, _ = watching(Hosts(("node2", message)))
    assert 0.2 <= follow(one) < 2
    assert one.first_failure is not None and "node1" in one.waiting


def test_a_moment_is_enough_for_another_host_to_tell():
    one, _ = watching(Hosts(("node2", ended(ok=False)), ("node1", ended(ok=False))))
    assert follow(one) < 0.2
    assert set(one.ended) == {"node1", "node2"}


def test_what_an_earlier_job_says_is_not_heard():
    one, lines = watching(Hosts(("node1", ended(id="earlier")), ("elsewhere", ended())))
    assert follow(one, 0.3) >= 0.3
    assert one.waiting == ["node1", "node2"] and not lines


def test_what_comes_after_a_hosts_end_does_not_change_it():
    one, _ = watching(Hosts(("node1", ended()), ("node1", ended(ok=False)), ("node2", ended())))
    follow(one)
    assert one.ended["node1"]["ok"] and one.first_failure is None


def test_all_say_where_they_stand_before_any_is_stopped():
    answer = {"stacks": {"event": "stacks"}, "stop": ended(ok=False)}
    hosts = Hosts(answers={"node1": answer, "node2": answer})
    one, _ = watching(hosts)
    one.stop(hosts.connections("node1", "node2"), stacks=True)
    assert [do for _, do in hosts.told] == ["stacks", "stacks", "stop", "stop"]
    assert one.waiting == [] and hosts.dropped == []


def test_who_has_ended_is_not_stopped_and_who_does_not_answer_is_hung_up_on():
    hosts = Hosts(("node1", ended()))
    one, _ = watching(hosts)
    one.follow(time.monotonic() + 0.1)
    one.stop(hosts.connections("node1", "node2"), stacks=False)
    assert hosts.told == [("node2", "stop")] and hosts.dropped == ["node2"]


def test_an_agent_that_is_ending_is_hung_up_on_too():
    hosts = Hosts(("node1", ended(dying=True)), answers={"node2": {"stop": ended(ok=False)}})
    one, _ = watching(hosts)
    one.follow(time.monotonic() + 0.1)
    one.stop(hosts.connections("node1", "node2"), stacks=False)
    assert hosts.dropped == ["node1"]
