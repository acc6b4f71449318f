"""The exercise ddp: the solution holds, the starter is told where to start, planted mistakes are named."""

import functools
import os
import sys
import time
from collections.abc import Callable

import exercise
import pytest
from distlab.checks import CheckResult, check, names
from distlab.checks.engine import Observed
from distlab.course import CourseError
from distlab.hosts import HostsError
from distlab.lessons.ddp.check.mistakes import LEAVE, LOOP, REDUCE, SAMPLER
from exercise import assert_says, broken_when, line_of, one_line, states

edited = functools.partial(exercise.edited, "ddp")
REQUIREMENTS = ["runs", "joins", "device", "sampler", "wrap", "epochs", "loss", "saves", "leaves"]

STEP = "            total, count = total + loss.item() * len(x), count + len(x)\n"


@pytest.fixture(scope="module")
def solved() -> CheckResult:
    return check("ddp", file="solutions/ddp.py")


def test_solution_holds(solved):
    assert states(solved) == dict.fromkeys(REQUIREMENTS, "holds")
    assert solved.ok
    assert solved.mistakes == []
    assert [end.rank for end in solved.run.ranks] == [0, 1, 2, 3]
    said = str(solved)
    assert said.startswith("ddp: solutions/ddp.py on node1 (ranks 0 and 1) and node2 (ranks 2 and 3)\n  ✔ the file ")
    assert said.endswith("\n\nAll 9 hold: this exercise is done.")
    assert "✘" not in said


def test_starter_is_told_where_to_start(capsys):
    result = check("ddp")
    assert not result.ok
    assert states(result) == {
        "runs": "holds",
        "joins": "broken",
        "device": "broken",
        "sampler": "open",
        "wrap": "open",
        "epochs": "open",
        "loss": "open",
        "saves": "broken",
        "leaves": "open",
    }
    said = capsys.readouterr().out
    assert max(map(len, said.splitlines())) <= 100
    assert one_line(said).endswith(
        "The 4 ranks never met and each trained a model of its own: "
        "start with TODO 1, dist.init_process_group() at the top of train. Then: TODO 2 and TODO 7."
    )


def test_two_mistakes_are_told_in_the_order_of_mending(tmp_path, capsys):
    prints = (REDUCE, '    print("steps", len(loader))\n')
    result = check("ddp", file=edited(tmp_path, (LEAVE, ""), ("DistributedDataParallel(model)", "model"), prints))
    assert [verdict.name for verdict in result.broken] == ["wrap", "loss", "leaves"]
    assert "is not wrapped" in result.mistakes[0]
    said = capsys.readouterr().out
    assert one_line(said).endswith("averaged the gradients. Then: TODO 6 and TODO 8.")
    assert result.printed == [(rank, "steps 3") for rank in range(4)]
    assert "Your file printed:\n  node1:0 | steps 3\n  node1:1 | steps 3\n  node2:2 | steps 3\n" in said


def trained(observed: Observed, rank: int) -> dict:
    return observed.result.last("trained")[rank]


def compared(observed: Observed) -> dict:
    return observed.result.last("compared")[0]


def wrongly_seated(observed: Observed) -> None:
    """As `rank % gpus` gives it: right on hosts of two ranks each, wrong when a host has one."""
    choices = observed.result.last("device")[0]["choices"]
    choice = next(choice for choice in choices if choice["place"] == [1, 0])
    choice["device"] = "cuda:1"


def late_epoch(observed: Observed) -> None:
    """As set_epoch(epoch) at the end of an epoch does."""
    for rank in range(4):
        batches = trained(observed, rank)["batches"]
        batches[3:6] = batches[0:3]


def file_order(observed: Observed) -> None:
    for rank in range(4):
        share = list(range(rank, 64, 4))
        trained(observed, rank)["batches"][:] = [share[0:6], share[6:12], share[12:]] * 3


def own_seeds(observed: Observed) -> None:
    """Two samples of rank 1 change places with two that rank 3 has, and rank 3 keeps its own."""
    trained(observed, 1)["batches"][0][:2] = trained(observed, 3)["batches"][0][:2]


def one_batch_again(observed: Observed) -> None:
    for rank in range(4):
        batches = trained(observed, rank)["batches"]
        batches[1] = batches[2] = batches[0]


def all_returned(value_of) -> Callable[[Observed], None]:
    def alter(observed: Observed) -> None:
        for rank in range(4):
            record = trained(observed, rank)
            record["returned"] = value_of(rank, record["returned"])

    return alter


def no_loss(observed: Observed) -> None:
    trained(observed, 2).update(returned=None, returned_type="NoneType")


def first_of_each_host_saves(observed: Observed) -> None:
    trained(observed, 2)["saves"] = 1


def nobody_saves(observed: Observed) -> None:
    trained(observed, 0)["saves"] = 0
    compared(observed)["checkpoint"] = {"fault": "absent"}


def saved_early(observed: Observed) -> None:
    compared(observed)["checkpoint"] = {"apart": 0.25}


def diverged(observed: Observed) -> None:
    compared(observed)["to_twin"] = None


def group_of_a_host(observed: Observed) -> None:
    for rank in range(4):
        trained(observed, rank)["group"] = 2


ALTERED = {
    wrongly_seated: ("device", "rank 1, whose local rank is 0, chose cuda:1, but cuda:0 is its own"),
    late_epoch: ("epochs", "in the same order in epochs 0 and 1: sampler.set_epoch(epoch) is missing at the start"),
    file_order: ("epochs", "in the same order in epochs 0 and 1: the sampler does not shuffle"),
    own_seeds: (
        "sampler",
        "rank 1 and rank 3 have 2 samples of epoch 0 in common: all ranks must shuffle",
    ),
    one_batch_again: ("sampler", "no rank saw 40 of the 64 samples in epoch 0"),
    all_returned(lambda rank, value: value if rank == 0 else value + 0.5 * rank): (
        "loss",
        "rank 0 returned *, but rank 1 returned a loss of *: all_reduce gives the result to every rank",
    ),
    all_returned(lambda _, value: 4 * value): ("loss", ", 4 times too much, since over all ranks the mean is"),
    all_returned(lambda _, value: value + 0.01): ("loss", "in the last epoch: weight each batch by its samples"),
    no_loss: ("loss", "rank 2 got NoneType from train, not the mean loss"),
    first_of_each_host_saves: ("saves", "ranks 0 and 2 wrote the checkpoint: every host has a local rank 0"),
    nobody_saves: ("saves", "nobody saved the model"),
    saved_early: ("saves", "the checkpoint differs by up to 0.25 from the trained model: save after the last step"),
    diverged: ("wrap", "the weights differ without limit (they are no longer finite) from those of one process"),
    group_of_a_host: ("joins", "rank 0 trained in a group of 2, but there are 4 ranks"),
}


@pytest.mark.parametrize("alter", ALTERED, ids=lambda alter: alter.__name__)
def test_altered_record_of_the_solution_is_named(alter, solved):
    """The same judges on what ranks would report after rarer mistakes."""
    requirement, phrase = ALTERED[alter]
    broken = broken_when("ddp", solved, alter)
    assert [verdict.name for verdict in broken] == [requirement]
    assert_says(broken[0].mistake, phrase)


RIGHT = {
    "own arguments": [
        (SAMPLER, "DistributedSampler(dataset, dist.get_world_size(), rank, seed=42, drop_last=True)"),
        ("sampler=sampler)", "sampler=sampler, drop_last=True)"),
        ("dist.init_process_group()", 'dist.init_process_group("gloo")'),
        ('torch.device("cuda", local_rank)', 'torch.device(f"cuda:{local_rank % torch.cuda.device_count()}")'),
        (
            "torch.save(model.state_dict(), checkpoint)",
            'half = f"{checkpoint}.half"\n'
            '        torch.save({"model": wrapped.module.state_dict(), "epochs": epochs}, half)\n'
            "        os.replace(half, checkpoint)",
        ),
    ],
    "averaged by hand": [
        (
            "DistributedDataParallel(model)",
            "model\n    for p in model.state_dict().values():\n        dist.broadcast(p, 0)",
        ),
        (
            "            optimizer.step()\n",
            "            for p in model.parameters():\n"
            "                if p.requires_grad:\n"
            "                    dist.all_reduce(p.grad)\n"
            "                    p.grad /= dist.get_world_size()\n"
            "            optimizer.step()\n",
        ),
        (LOOP, "    for epoch in range(epochs):\n"),
        (STEP, f"{STEP}        sampler.set_epoch(epoch + 1)\n"),
        ("DataLoader(dataset, batch_size, ", "DataLoader(dataset, batch_size, num_workers=1, "),
        ("return mean_loss", "return torch.tensor(mean_loss)"),
    ],
}


@pytest.mark.parametrize("way", RIGHT)
def test_other_right_ways_hold(way, tmp_path):
    result = check("ddp", file=edited(tmp_path, *RIGHT[way]))
    assert result.ok, result.mistakes


def test_file_that_python_cannot_read(tmp_path, capsys):
    file = edited(tmp_path, ("    for epoch in range(epochs):", "    for epoch in range(epochs)"))
    result = check("ddp", file=file)
    line = line_of(file, "for epoch in")
    assert result.mistakes == [
        f"mine.py, line {line}: Python cannot read it (expected ':' in for epoch in range(epochs))"
    ]
    assert capsys.readouterr().out.startswith("ddp: mine.py\n  ✘ Python can read it\n\nmine.py, line ")


def test_ranks_that_leave_others_behind(tmp_path):
    """Only rank 0 reduces; the others end and close their connections."""
    file = edited(tmp_path, (REDUCE, "    if rank == 0:\n        dist.all_reduce(sums)\n"))
    started = time.monotonic()
    result = check("ddp", file=file)
    assert time.monotonic() - started < 20
    line = line_of(file, "dist.all_reduce(sums)")
    assert result.mistakes[0] == (
        f"mine.py: rank 0 waited at line {line}, dist.all_reduce(sums), "
        "while ranks 1, 2 and 3 had finished: all ranks must take the same steps"
    )


def test_ranks_that_wait_for_each_other(tmp_path):
    """Half of the ranks wait for data that nobody sends, half for the others."""
    wait = "    if rank % 2:\n        dist.recv(sums, 0)\n    else:\n        dist.barrier()\n"
    file = edited(tmp_path, (REDUCE, wait))
    started = time.monotonic()
    result = check("ddp", file=file, timeout=3)
    assert time.monotonic() - started < 20
    assert states(result)["runs"] == "broken"
    recv, barrier = line_of(file, "dist.recv"), line_of(file, "dist.barrier")
    parts = [
        f"ranks 1 and 3 waited at line {recv}, dist.recv(sums, 0)",
        f"ranks 0 and 2 waited at line {barrier}, dist.barrier()",
    ]
    for part in parts:
        assert part in result.mistakes[0]
    assert result.mistakes[0].endswith("all ranks must take the same steps")


def test_endless_loop(tmp_path):
    file = edited(tmp_path, (REDUCE, "    while True: pass\n"))
    result = check("ddp", file=file, timeout=3)
    assert "mine.py: every rank was still at line " in result.mistakes[0]
    assert result.mistakes[0].endswith(" after 3 s")


def test_unknown_exercise():
    assert "ddp" in names()
    with pytest.raises(CourseError, match="no exercise 'dpd': did you mean ddp?"):
        check("dpd")


def test_missing_file():
    with pytest.raises(FileNotFoundError, match=r"no file nowhere/mine\.py"):
        check("ddp", file="nowhere/mine.py")


def test_one_rank_is_not_enough():
    with pytest.raises(HostsError, match="two or more"):
        check("ddp", hosts="node1:1")


def test_a_check_leaves_nothing_behind(tmp_path, monkeypatch, solved):
    """No file in the attendee's folder, nothing in the process."""
    edited(tmp_path)
    monkeypatch.chdir(tmp_path)
    files = {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*")}
    before, path = dict(os.environ), list(sys.path)
    assert check("ddp", file="mine.py").ok
    assert dict(os.environ) == before
    assert sys.path == path
    assert {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*")} == files
