"""Elastic training on two hosts: a rank is killed, the others go on, nothing is lost and nothing is left running."""

import os
import signal
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import needs
import psutil
import pytest
from distlab.hosts import Host, HostList
from distlab.hosts.interface import leading_to
from distlab.lessons.horovod.experiments import elastic as horovod_elastic
from distlab.lessons.horovod.pictures import elastic
from distlab.waiting import wait_until
from running import Runner

pytestmark = [pytest.mark.timeout(200), pytest.mark.usefixtures("built")]

EXPERIMENT = Path(horovod_elastic.__file__)
STEPS, COMMITTED, KILLED_IN, SAMPLES = 24, 8, 11, 2048


@pytest.fixture(scope="module")
def built():
    needs.horovod()


def started_for(folder: Path) -> dict[int, str]:
    """Command lines of all that was started for a run: they work in its folder, or have it in words or variables."""
    found = {}
    for process in psutil.process_iter():
        with suppress(psutil.Error):
            words = " ".join(process.cmdline())
            its = str(folder) in words or Path(process.cwd()).is_relative_to(folder)
            if (
                its or process.environ().get("DISTLAB_RUNS") == str(folder)
            ) and process.status() != psutil.STATUS_ZOMBIE:
                found[process.pid] = words
    return found


def assert_none_left(folder: Path, within: float) -> None:
    wait_until(lambda: not started_for(folder), within)
    assert not started_for(folder)


@pytest.fixture(scope="module")
def done(built, warm_session, tmp_path_factory):
    """The experiment, once; nothing of it runs any more."""
    with pytest.MonkeyPatch.context() as patch:
        folder = tmp_path_factory.mktemp("runs")
        patch.setenv("DISTLAB_RUNS", str(folder))
        result = Runner(warm_session)(EXPERIMENT, hosts="node1:1", quiet=True, timeout=150)
        assert not started_for(folder)
    return result


@pytest.fixture
def records(done):
    return done.records("elastic")


def of(records: list[dict], what: str) -> list[dict]:
    return [record for record in records if record["what"] == what]


def test_the_rank_that_was_to_be_killed_is_and_its_host_is_given_up(done, records):
    (killed,), (dropped,), (job,) = of(records, "killed"), of(records, "dropped"), done.records("horovodrun")
    assert (killed["first_rank"], killed["hvd_host"], killed["step"]) == (job["killed_rank"], "node2", KILLED_IN)
    assert (dropped["first_rank"], dropped["hvd_host"]) == (3, "node2")
    started = {record["first_rank"]: record["hvd_host"] for record in of(records, "started")}
    assert started == {0: "node1", 1: "node1", 2: "node2", 3: "node2"}


def test_the_others_go_on_after_the_last_commit_in_a_smaller_world(records):
    assert elastic.last_commit(records) == COMMITTED
    assert {record["step"] for record in of(records, "restored")} == {COMMITTED}
    assert [record["world_size"] for record in of(records, "resized")] == [2, 2]
    after = [record for record in of(records, "step") if record["life"] == 1]
    assert {record["hvd_host"] for record in after} == {"node1"} and {record["world_size"] for record in after} == {2}
    for rank in (0, 1):
        own = [record["step"] for record in after if record["first_rank"] == rank]
        assert own == list(range(COMMITTED + 1, STEPS + 1))


def test_all_steps_last_in_order_and_each_sample_counts_once(records):
    assert elastic.lost(records) == list(range(COMMITTED + 1, KILLED_IN))
    assert elastic.lasting(records) == list(range(1, STEPS + 1))
    assert elastic.samples(records) == dict.fromkeys(range(SAMPLES), 1)


def test_survivors_end_with_the_same_weights_which_learned(records):
    ended = of(records, "ended")
    assert [record["hvd_rank"] for record in sorted(ended, key=lambda record: record["hvd_rank"])] == [0, 1]
    assert len({record["weights"] for record in ended}) == 1 and {record["step"] for record in ended} == {STEPS}
    steps = of(records, "step")
    first, last = ([record["loss"] for record in steps if record["step"] == step] for step in (1, STEPS))
    assert max(last) < 0.8 * min(first)


def test_what_happened_is_in_order_on_one_clock(records):
    (killed,) = of(records, "killed")
    before = [record["seconds"] for record in records if record["life"] == 0 and record["what"] in ("step", "commit")]
    assert max(before) < killed["seconds"]
    for rank in (0, 1):
        own = [record for record in records if record["first_rank"] == rank]
        told = [record["what"] for record in own if record["what"] not in ("step", "commit")]
        assert told == ["started", "lost", "restored", "resized", "ended"]
        assert killed["seconds"] < of(own, "lost")[0]["seconds"] < of(own, "resized")[0]["seconds"]
    assert "Rank 2 on node2 is killed in step 11" in elastic.picture(records).alt


def test_what_a_person_would_type_is_shown(done):
    (job,) = done.records("horovodrun")
    assert job["shown"].startswith("horovodrun --gloo -np 4 --min-np 2 --max-np 4 ")
    assert job["shown"].endswith(
        "--host-discovery-script ./discover.sh python distlab/lessons/horovod/experiments/elastic_rank.py"
    )
    assert "localhost:2" in job["discover"] and "127.0.0.1:2" in job["discover"]


def test_only_what_ranks_need_is_handed_on(monkeypatch):
    monkeypatch.setenv("WORKSHOP_TOKEN", "a secret")
    monkeypatch.setenv("DISTLAB_RECORDS", "/elsewhere")
    monkeypatch.setenv("DISTLAB_OFFLINE", "1")
    kept = horovod_elastic.small_environment()
    assert kept["DISTLAB_OFFLINE"] == "1" and kept["OMP_NUM_THREADS"] == "1" and kept["PATH"] == os.environ["PATH"]
    assert "WORKSHOP_TOKEN" not in kept and "DISTLAB_RECORDS" not in kept


# -- what goes wrong -----------------------------------------------------------------------------


def test_one_host_alone_is_refused(warm, monkeypatch):
    monkeypatch.setenv("DISTLAB_HOSTS", "node1:2")
    failure = warm.fails(EXPERIMENT, hosts="node1:1", quiet=True)
    assert "elastic training needs two hosts, and there is only node1: set DISTLAB_HOSTS" in failure.message


@pytest.mark.parametrize(
    ("breaks", "why"),
    [
        (["--network-interfaces", "eth77"], "No interface is found for address 127.0.0.1"),
        (["--host-discovery-script", "./nowhere.sh"], "Job has been shutdown"),
    ],
)
def test_a_horovodrun_that_cannot_start_is_told_in_one_sentence(tmp_path, breaks, why):
    hosts = horovod_elastic.two_hosts()
    horovod_elastic.discovery(tmp_path, hosts)
    words = horovod_elastic.command(hosts, 30, "--folder", str(tmp_path), "--start", "0")
    words[words.index(breaks[0]) + 1] = breaks[1]
    with pytest.raises(SystemExit, match=f"^horovodrun ended with status 1: .*{why}.*$") as caught:
        horovod_elastic.run_to_its_end(words, tmp_path, 30)
    assert "\n" not in str(caught.value)
    assert not started_for(tmp_path)


def test_real_hosts_go_by_their_names(monkeypatch):
    found = HostList([Host("node1", 4, "here", "10.0.0.1"), Host("node2", 2, "ssh", "127.0.0.9")], "a test")
    monkeypatch.setattr(horovod_elastic, "find", lambda: found)
    hosts = horovod_elastic.two_hosts()
    assert list(hosts) == ["node1", "node2"]
    # Whatever leads to the second host; here that is loopback.
    words = horovod_elastic.command(hosts, 30)
    assert words[words.index("--network-interfaces") + 1] == leading_to(["127.0.0.9"])
    assert words[words.index("-np") + 1] == "4"


def test_the_last_line_of_a_horovodrun_that_fails_is_told(tmp_path):
    words = ["/bin/sh", "-c", "echo first; echo 'no such interface: eth7' >&2; exit 3"]
    with pytest.raises(SystemExit, match="^horovodrun ended with status 3: no such interface: eth7$"):
        horovod_elastic.run_to_its_end(words, tmp_path, 10)


def test_a_missing_horovodrun_is_said(monkeypatch, tmp_path):
    monkeypatch.setattr(sys, "executable", str(tmp_path / "python"))
    with pytest.raises(SystemExit, match="no horovodrun beside .*: make horovod"):
        horovod_elastic.command(horovod_elastic.two_hosts(), 10)


def test_a_second_rank_that_nobody_has_cannot_be_killed(warm):
    failure = warm.fails(EXPERIMENT, "--kill-rank", "4", hosts="node1:1", quiet=True)
    assert "there is no rank 4 to kill: ranks count from 0 to 3" in failure.message


def test_at_its_deadline_what_left_its_session_is_ended_too(tmp_path):
    # As those do that watch over Horovod's ranks.
    words = ["/bin/sh", "-c", "setsid sleep 60 & echo started; wait"]
    with pytest.raises(SystemExit, match="^horovodrun did not end within 1 s: started$"):
        horovod_elastic.run_to_its_end(words, tmp_path, 1)
    assert not started_for(tmp_path)


def test_at_its_deadline_horovodrun_and_its_ranks_are_ended(warm, tmp_path):
    failure = warm.fails(EXPERIMENT, "--timeout", "5", hosts="node1:1", quiet=True)
    assert "horovodrun did not end within 5 s: " in failure.message
    assert not started_for(tmp_path / "runs")


def test_killed_the_experiment_takes_all_along_and_no_secret_was_to_be_seen(tmp_path, monkeypatch):
    runs = tmp_path / "runs"
    environment = {**os.environ, "DISTLAB_RUNS": str(runs), "WORKSHOP_TOKEN": "secret-7"}
    experiment = subprocess.Popen(
        [sys.executable, EXPERIMENT], env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    # Horovod writes a rank's variables into the command that starts it; this is the last rank's.
    last = "HOROVOD_RANK=3"
    try:
        wait_until(lambda: any(last in words for words in started_for(runs).values()), 60)
        running = started_for(runs)
        assert any(last in words for words in running.values())
        assert not [words for words in running.values() if "secret-7" in words]
    finally:
        experiment.send_signal(signal.SIGKILL)
        experiment.wait()
    # Who watches over a rank asks it to end, and ends it five seconds later.
    assert_none_left(runs, 15)


def test_a_traceback_that_another_thread_still_writes_is_not_its_last_word(tmp_path):
    log = tmp_path / "horovodrun.log"
    log.write_text(
        "Traceback (most recent call last):\n"
        '  File "main.py", line 3, in run\n'
        "RuntimeError: Job has been shutdown\n"
        "Exception in thread Thread-3 (_discover_hosts):\n"
        "Traceback (most recent call last):\n"
        '  File "discovery.py", line 177, in update_available_hosts\n'
    )
    assert horovod_elastic.last_words(log) == "RuntimeError: Job has been shutdown"
    log.write_text("\n")
    assert horovod_elastic.last_words(log) == "it said nothing"
