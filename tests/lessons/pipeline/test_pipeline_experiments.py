"""What the experiments of a pipeline measure on ranks, against what the schedule and the model's size say."""

from itertools import pairwise

import pipe_jobs
import pytest
import start_ranks
import torch
from distlab import models, report
from distlab.lessons.pipeline import orders
from distlab.lessons.pipeline.experiments import balance as pipe_balance
from distlab.lessons.pipeline.pictures import balance

WHOLE = 4 * sum(parameter.numel() for parameter in models.LanguageModel(8, 64, 4, 32).parameters())


@pytest.fixture(scope="module")
def reported(tmp_path_factory):
    """The records of an experiment, each run once."""
    known = {}

    def run(ranks, name, *words):
        if (ranks, name, words) not in known:
            folder = tmp_path_factory.mktemp(name)
            start_ranks.run(ranks, pipe_jobs.experiment, name, *words, folder=folder)
            known[ranks, name, words] = report.read(folder)
        return known[ranks, name, words]

    return run


def of(records, event):
    return [record for record in records if record["event"] == event]


# -- when stages work ----------------------------------------------------------------------------

MICROBATCHES = {2: (1, 2, 4), 4: (4, 8)}


def steps(reported, ranks):
    layers = ("--layers", 8) if ranks == 4 else ()
    words = (*layers, "--samples", 1, "--rounds", 2, "--alone", "--microbatches", *MICROBATCHES[ranks])
    return reported(ranks, "steps", *pipe_jobs.WORDS, *words)


@pytest.mark.parametrize("ranks", MICROBATCHES)
def test_each_stage_does_all_its_work_once_in_the_schedules_order(reported, ranks):
    work = of(steps(reported, ranks), "work")
    assert len(work) == ranks * (10 if ranks == 2 else 8)
    for record in work:
        found = [orders.Work(span["kind"], span["stage"], span["microbatch"]) for span in record["spans"]]
        assert found == orders.order(record["schedule"], ranks, record["microbatches"])[record["rank"]]
        assert (record["ranks"], record["stages"]) == (ranks, ranks * orders.STAGES_PER_RANK[record["schedule"]])


@pytest.mark.parametrize("ranks", MICROBATCHES)
def test_a_rank_does_one_thing_at_a_time_and_all_within_the_step(reported, ranks):
    for record in of(steps(reported, ranks), "work"):
        assert all(span["end"] > span["start"] for span in record["spans"])
        assert all(early["end"] <= late["start"] for early, late in pairwise(record["spans"]))
        assert record["spans"][0]["start"] >= 0 and record["spans"][-1]["end"] <= record["milliseconds"]


def test_all_ranks_report_the_same_step_the_quickest_of_all(reported):
    times = {}
    for record in of(steps(reported, 2), "work"):
        assert len(record["each"]) == 2 and record["milliseconds"] == min(record["each"])
        times.setdefault((record["schedule"], record["microbatches"]), set()).add(tuple(record["each"]))
    assert len(times) == 10 and all(len(own) == 1 for own in times.values())


def test_what_a_schedule_does_not_allow_is_reported(reported):
    skipped = [record for record in of(steps(reported, 2), "skipped") if record["rank"] == 0]
    assert [(record["schedule"], record["microbatches"]) for record in skipped] == [("1f1b", 1), ("interleaved", 1)]
    assert skipped[0]["why"].startswith("1f1b needs a microbatch for each of its 2 stages")


def test_one_process_is_measured_for_each_number_of_microbatches(reported):
    alone = [record for record in of(steps(reported, 2), "alone") if record["rank"] == 1]
    assert [record["microbatches"] for record in alone] == [1, 2, 4]
    assert all(len(record["each"]) == len(record["each_at_once"]) == 2 for record in alone)
    assert all(time > 0 for record in alone for time in record["each"] + record["each_at_once"])


def test_waiting_is_no_work_and_the_watch_leaves_nothing_behind(tmp_path):
    (quick, left), (slow, also_left) = start_ranks.run(2, pipe_jobs.waiting, folder=tmp_path)
    least = 1000 * pipe_jobs.SLEEP
    forwards = [record["end"] - record["start"] for record in slow if record["kind"] == "forward"]
    assert len(forwards) == 4 and min(forwards) >= least
    assert max(record["end"] - record["start"] for record in quick) < least < quick[-1]["end"]
    assert left == also_left == []


def test_watching_changes_no_gradient_and_one_process_has_the_same(tmp_path):
    for plain, watched, alone in start_ranks.run(2, pipe_jobs.gradients, folder=tmp_path):
        assert plain == watched
        for name, values in alone.items():
            torch.testing.assert_close(torch.tensor(plain[name]), torch.tensor(values), atol=1e-5, rtol=1e-4)


# -- memory --------------------------------------------------------------------------------------


@pytest.fixture
def memory(reported):
    records = of(reported(4, "memory"), "memory")
    return {(record["schedule"], record["rank"]): record for record in records}


def test_how_many_microbatches_a_rank_holds_follows_from_the_schedule(memory):
    for rank in range(4):
        held = {
            name: memory[name, rank]["activations"] / memory[name, rank]["of_one"] for name in orders.STAGES_PER_RANK
        }
        assert held["gpipe"] == pytest.approx(8, rel=0.01)
        assert held["1f1b"] == pytest.approx(4 - rank, rel=0.01)
        assert held["zero-bubble"] <= 4.5


def test_parameters_and_what_goes_with_them_are_all_there(memory):
    for name in orders.STAGES_PER_RANK:
        own = [memory[name, rank] for rank in range(4)]
        assert sum(record["parameters"] for record in own) == sum(record["gradients"] for record in own) == WHOLE
        # Adam's two means of each number, and a count of updates for each tensor.
        tensors = len(list(models.LanguageModel(8, 64, 4, 32).parameters()))
        assert sum(record["optimizer"] for record in own) == 2 * WHOLE + 4 * tensors


# -- balance -------------------------------------------------------------------------------------


def test_the_balanced_cut_follows_from_what_layers_take(tmp_path):
    words = (*pipe_jobs.WORDS, "--layers", 4, "--samples", 1, "--rounds", 2, "--microbatches", 2)
    start_ranks.run(2, pipe_jobs.slow_head, *words, folder=tmp_path)
    records = report.read(tmp_path)
    costs = [record["milliseconds"] for record in of(records, "layer")]
    assert len(costs) == 4 and costs[3] > 1000 * pipe_jobs.SLEEP > 2 * max(costs[:3])
    found = {(record["split"], record["stage"]): record for record in of(records, "balance")}
    best = ", ".join(map(str, balance.split(costs, 2)))
    assert best == "3, 1" and set(found) == {(cut, stage) for cut in ("1, 3", "3, 1") for stage in (0, 1)}
    assert [found["1, 3", stage]["layers"] for stage in (0, 1)] == [1, 3]
    for record in found.values():
        assert (record["milliseconds"] > 1000 * pipe_jobs.SLEEP) == (record["stage"] == 1)
        assert record["step_milliseconds"] > 2 * 1000 * pipe_jobs.SLEEP
    work = of(records, "work")
    assert [record["cut"] for record in work] == 2 * [[1, 3], [3, 1]]


def test_a_microbatch_takes_a_usual_forward_and_a_usual_backward():
    spans = [{"kind": "forward", "start": 10 * n, "end": 10 * n + took} for n, took in enumerate((2, 3, 9))]
    spans += [{"kind": "backward", "start": 50, "end": 55}]
    assert pipe_balance.of_a_microbatch(spans) == 3 + 5


# -- links ---------------------------------------------------------------------------------------


def test_bytes_by_receiver_are_those_of_messages_and_gradients_and_the_sockets_agree(reported):
    words = ("--layers", 2, "--width", 64, "--context", 16, "--microbatches", 4, "--samples", 2, "--rounds", 1)
    records = {(record["layout"], record["rank"]): record for record in of(reported(4, "links", *words), "links")}
    assert len(records) == 8
    # Four microbatches of two sequences: activations to the next stage, or gradients back.
    messages = 4 * 2 * 16 * 64 * 4
    block = 4 * 64 + 3 * 64**2 + (64**2 + 64) + (4 * 64**2 + 4 * 64) + (4 * 64**2 + 64)
    gradients = {0: 4 * (block + (256 + 16) * 64), 1: 4 * (block + 2 * 64 + 256 * 64)}
    for (layout, rank), record in records.items():
        crossing = layout == "pipeline between hosts"
        stage = rank // 2 if crossing else rank % 2
        mean = gradients[stage]
        assert (record["to_other_host"], record["to_own_host"]) == ((messages, mean) if crossing else (mean, messages))
        assert record["tcp"] is None or record["tcp"] == pytest.approx(messages + mean, rel=0.02)
