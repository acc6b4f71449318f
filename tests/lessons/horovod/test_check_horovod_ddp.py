"""The exercise horovod_ddp: the solution holds, the starter is told where to start, planted mistakes are named."""

import functools
import time

import exercise
import needs
import pytest
from distlab.checks import CheckResult, check
from distlab.checks.engine import Observed
from distlab.launch import ScriptError
from distlab.lessons.horovod.check.mistakes import PARAMETERS, REDUCE, STEP, WRAP
from exercise import assert_says, broken_when, line_of, states

pytestmark = pytest.mark.timeout(120)

edited = functools.partial(exercise.edited, "horovod_ddp")
REQUIREMENTS = ["runs", "joins", "device", "sampler", "rate", "wraps", "starts", "trains", "epochs", "loss", "saves"]


@pytest.fixture(scope="module", autouse=True)
def _horovod():
    needs.horovod()


@pytest.fixture(scope="module")
def solved(_horovod) -> CheckResult:
    return check("horovod_ddp", file="solutions/horovod_ddp.py")


def test_solution_holds(solved):
    assert states(solved) == dict.fromkeys(REQUIREMENTS, "holds"), solved.mistakes
    assert solved.run.launcher == "horovodrun"
    assert [(end.rank, end.host) for end in solved.run.ranks] == [
        (0, "node1"),
        (1, "node1"),
        (2, "node2"),
        (3, "node2"),
    ]


def test_starter_is_told_where_to_start(capsys):
    result = check("horovod_ddp")
    found = {name: state for name, state in states(result).items() if state != "open"}
    assert found == {"runs": "holds", "joins": "broken", "device": "broken", "saves": "broken"}
    said = capsys.readouterr().out
    assert max(map(len, said.splitlines())) <= 100
    assert "the 4 ranks never met and each trained a model of its own: start with TODO 1, hvd.init()" in " ".join(
        result.mistakes
    )


def each_trained(change) -> object:
    def alter(observed: Observed) -> None:
        for rank in range(4):
            change(rank, observed.result.last("trained")[rank])

    return alter


def compared(**more) -> object:
    def alter(observed: Observed) -> None:
        observed.result.last("compared")[0].update(more)

    return alter


ALTERED = {
    "a group of a host": (
        each_trained(lambda _, record: record.update(group=2)),
        "joins",
        "rank 0 trained in a group of 2",
    ),
    "the raw optimizer steps": (compared(gradients=[0.0, 0.5, 0.5, 0.5]), "wraps", "is not the one that hvd.Distrib"),
    "broadcast too late": (compared(began=[0.0, 0.2, 0.2, 0.2]), "starts", "was called too late"),
    "another rank is the root": (compared(began=[0.2, 0.0, 0.2, 0.2]), "starts", "rank 0 began with other weights"),
    "state broadcast before it was there": (compared(momentum=[0.0, None, 0.0, 0.0]), "starts", "must come after"),
    "sums in place of averages": (compared(to_twin=0.3), "trains", "averages, it does not add up"),
    "diverged": (compared(to_twin=None), "trains", "without limit"),
    "first of each host saves": (
        lambda observed: observed.result.last("trained")[2].update(saves=1),
        "saves",
        "every host has a local rank 0",
    ),
    "sums returned": (
        each_trained(lambda _, record: record.update(returned=4 * record["returned"])),
        "loss",
        "4 times too much",
    ),
}


@pytest.mark.parametrize("case", ALTERED)
def test_altered_record_of_the_solution_is_named(case, solved):
    alter, requirement, phrase = ALTERED[case]
    broken = broken_when("horovod_ddp", solved, alter)
    assert [verdict.name for verdict in broken] == [requirement]
    assert_says(broken[0].mistake, phrase)


RIGHT = {
    "averaged by hand, and left": [
        (WRAP, ""),
        (
            PARAMETERS,
            "    for name, value in sorted(model.state_dict().items()):\n        hvd.broadcast_(value, 0, name)\n",
        ),
        (
            STEP,
            "            for name, p in model.named_parameters():\n"
            "                if p.requires_grad:\n"
            "                    hvd.allreduce_(p.grad, name=name)\n" + STEP,
        ),
        ("    return mean_loss", "    hvd.shutdown()\n    return mean_loss"),
    ],
    "names and one broadcast": [
        (WRAP, WRAP.replace("optimizer, model", "optimizer, named_parameters=model")),
        (PARAMETERS, "    hvd.broadcast_parameters(dict(model.named_parameters()), root_rank=0)\n"),
        ("hvd.init()", "hvd.init()\n    torch.manual_seed(hvd.rank())"),
    ],
}


@pytest.mark.parametrize("way", RIGHT)
def test_other_right_ways_hold(way, tmp_path):
    result = check("horovod_ddp", file=edited(tmp_path, *RIGHT[way]))
    assert result.ok, result.mistakes


def test_ranks_that_wait_for_one_that_does_not_come(tmp_path):
    """Only rank 0 adds up; Horovod itself would wait for ever."""
    lonely = f"{REDUCE} if rank == 0 else (total, count)"
    file = edited(tmp_path, (REDUCE, lonely), ("        lr = lr * hvd.size()\n", "        lr = lr * hvd.size()\n"))
    started = time.monotonic()
    result = check("horovod_ddp", file=file, timeout=8)
    assert time.monotonic() - started < 60
    assert states(result)["runs"] == "broken"
    assert f"line {line_of(file, 'hvd.allreduce')}" in result.mistakes[0], result.mistakes


def test_without_horovod_one_sentence(monkeypatch):
    from distlab.horovod_wheel import state

    monkeypatch.setattr("distlab.launchers.horovodrun.find_spec", lambda name: None)
    monkeypatch.setattr(state, "installed", lambda: None)
    with pytest.raises(ScriptError, match="horovodrun is part of Horovod, which is not built yet: run make horovod"):
        check("horovod_ddp")
