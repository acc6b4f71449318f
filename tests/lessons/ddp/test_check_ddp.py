"""The exercise ddp: the solution holds, the starter is told where to start, planted mistakes are named."""

import functools
import os
import subprocess
import sys
import time
from collections.abc import Callable

import exercise
import pytest
from distlab.checks import CheckResult, check, names
from distlab.checks.engine import Job, judge
from distlab.course import CourseError
from distlab.hosts import HostsError
from exercise import assert_named, assert_says, broken_when, line_of, one_line, states

edited = functools.partial(exercise.edited, "ddp")
REQUIREMENTS = ["runs", "joins", "device", "sampler", "wrap", "epochs", "loss", "saves", "leaves"]

SAMPLER = "DistributedSampler(dataset)"
LOOP = "    for epoch in range(epochs):\n        sampler.set_epoch(epoch)\n"
STEP = "            total, count = total + loss.item() * len(x), count + len(x)\n"
SAVE = "    if rank == 0:\n        torch.save(model.state_dict(), checkpoint)\n"
REDUCE = "    dist.all_reduce(sums)\n"
LEAVE = "    dist.destroy_process_group()\n"


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


MISTAKES = {
    "sampler missing": (
        [("sampler=sampler)", "shuffle=True)")],
        "sampler",
        "rank 0 and rank 1 both saw all 64 samples in epoch 0: the loader has no DistributedSampler",
    ),
    "set_epoch missing": (
        [("        sampler.set_epoch(epoch)\n", "")],
        "epochs",
        "rank 0 saw the same 16 samples in the same order in epochs 0 and 1: sampler.set_epoch(epoch) is missing",
    ),
    "model not wrapped": (
        [("DistributedDataParallel(model)", "model")],
        "wrap",
        "after 9 steps the weights of rank 0 and rank 1 differ by up to *: "
        "the model is not wrapped in DistributedDataParallel",
    ),
    "device from rank": (
        [('torch.device("cuda", local_rank)', 'torch.device("cuda", rank)')],
        "device",
        "on a host with 2 GPUs rank 2, whose local rank is 0, chose cuda:2, but cuda:0 is its own: "
        "a host counts its GPUs from 0, so choose by local_rank, not by rank",
    ),
    "every rank saves": (
        [(SAVE, SAVE.replace("    if rank == 0:\n    ", ""))],
        "saves",
        "every rank wrote the checkpoint, 4 at the same time: save only if rank == 0",
    ),
    "loss not reduced": (
        [(REDUCE, "")],
        "loss",
        "rank 0 returned a loss of *, the mean over its own samples, but over all ranks the mean is *: "
        "add up loss and count with dist.all_reduce",
    ),
    "group not destroyed": (
        [(LEAVE, "")],
        "leaves",
        "ranks 0, 1, 2 and 3 left the process group open: it is not destroyed at the end of train",
    ),
    # The same seven in other clothes, and what people do on the way.
    "set_epoch before the loop": (
        [(LOOP, "    sampler.set_epoch(0)\n    for _ in range(epochs):\n")],
        "epochs",
        "in the same order in epochs 0 and 1: sampler.set_epoch(epoch) is missing at the start of each epoch",
    ),
    "sampler by local rank": (
        [(SAMPLER, "DistributedSampler(dataset, rank=local_rank)")],
        "sampler",
        "rank 0 and rank 2 saw the same 16 samples in epoch 0: DistributedSampler needs the global rank",
    ),
    "bare model trained": (
        [("wrapped(x)", "model(x)")],
        "wrap",
        "differ by up to *: the model was wrapped, but batches do not go through the wrapped one",
    ),
    "gradients pile up": (
        [("            optimizer.zero_grad()\n", "")],
        "wrap",
        "after 9 steps the weights differ by up to * from those of one process that took the same batches",
    ),
    "wrapper saved": (
        [("model.state_dict()", "wrapped.state_dict()")],
        "saves",
        "every key in the checkpoint begins with module., so a plain model cannot load it",
    ),
}


@pytest.mark.parametrize("mistake", MISTAKES)
def test_planted_mistake_is_named_first(mistake, tmp_path):
    edits, requirement, phrase = MISTAKES[mistake]
    assert_named(check("ddp", file=edited(tmp_path, *edits)), requirement, phrase, may_be_open={"epochs"})


def test_two_mistakes_are_told_in_the_order_of_mending(tmp_path, capsys):
    prints = (REDUCE, '    print("steps", len(loader))\n')
    result = check("ddp", file=edited(tmp_path, (LEAVE, ""), ("DistributedDataParallel(model)", "model"), prints))
    assert [one.name for one in result.broken] == ["wrap", "loss", "leaves"]
    assert "is not wrapped" in result.mistakes[0]
    said = capsys.readouterr().out
    assert one_line(said).endswith("averaged the gradients. Then: TODO 6 and TODO 8.")
    assert result.printed == [(rank, "steps 3") for rank in range(4)]
    assert "Your file printed:\n  node1:0 | steps 3\n  node1:1 | steps 3\n  node2:2 | steps 3\n" in said


def trained(job: Job, rank: int) -> dict:
    return job.result.last("trained")[rank]


def compared(job: Job) -> dict:
    return job.result.last("compared")[0]


def wrongly_seated(job: Job) -> None:
    """As `rank % gpus` gives it: right on hosts of two ranks each, wrong when a host has one."""
    choices = job.result.last("device")[0]["choices"]
    choice = next(one for one in choices if one["seat"] == [1, 0])
    choice["device"] = "cuda:1"


def late_epoch(job: Job) -> None:
    """As set_epoch(epoch) at the end of an epoch does."""
    for rank in range(4):
        batches = trained(job, rank)["batches"]
        batches[3:6] = batches[0:3]


def file_order(job: Job) -> None:
    for rank in range(4):
        share = list(range(rank, 64, 4))
        trained(job, rank)["batches"][:] = [share[0:6], share[6:12], share[12:]] * 3


def own_seeds(job: Job) -> None:
    """Two samples of rank 1 change places with two that rank 3 has, and rank 3 keeps its own."""
    trained(job, 1)["batches"][0][:2] = trained(job, 3)["batches"][0][:2]


def one_batch_again(job: Job) -> None:
    for rank in range(4):
        batches = trained(job, rank)["batches"]
        batches[1] = batches[2] = batches[0]


def all_returned(value_of) -> Callable[[Job], None]:
    def alter(job: Job) -> None:
        for rank in range(4):
            record = trained(job, rank)
            record["returned"] = value_of(rank, record["returned"])

    return alter


def no_loss(job: Job) -> None:
    trained(job, 2).update(returned=None, returned_type="NoneType")


def first_of_each_host_saves(job: Job) -> None:
    trained(job, 2)["saves"] = 1


def nobody_saves(job: Job) -> None:
    trained(job, 0)["saves"] = 0
    compared(job)["checkpoint"] = {"fault": "absent"}


def saved_early(job: Job) -> None:
    compared(job)["checkpoint"] = {"apart": 0.25}


def diverged(job: Job) -> None:
    compared(job)["to_twin"] = None


def group_of_a_host(job: Job) -> None:
    for rank in range(4):
        trained(job, rank)["group"] = 2


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
    assert [one.name for one in broken] == [requirement]
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


BROKEN_OFF = {
    "function renamed": (
        [("def train(", "def training("), ("loss = train(", "loss = training(")],
        "mine.py has no function train(dataset, model, epochs, batch_size, lr, checkpoint)",
        None,
    ),
    "argument renamed": (
        [("batch_size: int, lr: float", "batch: int, lr: float"), ("(dataset, batch_size,", "(dataset, batch,")],
        "mine.py has train(dataset, model, epochs, batch, lr, checkpoint), "
        "which cannot be called as train(dataset, model, epochs, batch_size, lr, checkpoint)",
        None,
    ),
    "group not joined": (
        [("    dist.init_process_group()\n", "")],
        "ValueError: Default process group has not been initialized, *dist.init_process_group()",
        "sampler = DistributedSampler",
    ),
    "one rank raises": (
        [(REDUCE, f"    if rank == 2:\n        count = count / 0\n{REDUCE}")],
        "rank 2 on node2: ZeroDivisionError: division by zero",
        "count = count / 0",
    ),
    "still to write": (
        [(REDUCE, "    raise NotImplementedError\n")],
        "raise NotImplementedError is still to be replaced by your code",
        "raise NotImplementedError",
    ),
}


@pytest.mark.parametrize("fault", BROKEN_OFF)
def test_file_that_does_not_run_to_its_end(fault, tmp_path):
    edits, phrase, code = BROKEN_OFF[fault]
    file = edited(tmp_path, *edits)
    result = check("ddp", file=file)
    assert states(result)["runs"] == "broken"
    assert_says(result.mistakes[0], phrase)
    if code:
        assert f"mine.py, line {line_of(file, code)}" in result.mistakes[0]


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


def test_kernel_stays_light():
    code = "import sys; from distlab.checks import check; import {more}; assert {heavy!r} not in sys.modules"
    for heavy, more in (("pytest", "distlab"), ("torch", "distlab.lessons.ddp.check.requirements")):
        subprocess.run([sys.executable, "-c", code.format(heavy=heavy, more=more)], check=True, timeout=60)


def test_nothing_outside_reaches_the_engine(tmp_path, monkeypatch, solved):
    """A hostile folder: pytest settings, a conftest and plugins that would each break a run; and no file is left."""
    edited(tmp_path)
    (tmp_path / "conftest.py").write_text("raise SystemExit('conftest was read')\n")
    (tmp_path / "pytest.ini").write_text("[pytest]\naddopts = --no-such-option\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PYTEST_ADDOPTS", "--no-such-option")
    monkeypatch.setenv("PYTEST_PLUGINS", "no_such_plugin")
    files = {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*")}
    before, path = dict(os.environ), list(sys.path)
    assert check("ddp", file="mine.py").ok
    assert dict(os.environ) == before
    assert sys.path == path
    assert {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*")} == files


def test_fault_of_a_requirement_is_no_mistake_of_the_attendee(tmp_path, solved):
    judges = tmp_path / "judges.py"
    judges.write_text("def test_typo(job):\n    assert job.reslut\n")
    with pytest.raises(RuntimeError, match="judges: a requirement failed by its own fault"):
        judge(judges, Job(solved.run, None))
