"""The exercise data_parallel: the solution holds, the starter is told where to start, planted mistakes are named."""

import functools

import exercise
import pytest
from distlab.checks import CheckResult, check
from distlab.hosts import HostsError
from distlab.lessons.data_parallel.check.mistakes import ADD, ERRORS, GATHER, REPLICATE, SCATTER, THREADS
from exercise import assert_says, line_of, one_line, states

edited = functools.partial(exercise.edited, "data_parallel")
REQUIREMENTS = ["runs", "scatter", "replicate", "apply", "gather", "gradients", "saves", "loads", "trains"]


@pytest.fixture(scope="module")
def solved() -> CheckResult:
    return check("data_parallel", file="solutions/data_parallel.py")


def test_solution_holds(solved):
    assert states(solved) == dict.fromkeys(REQUIREMENTS, "holds")
    assert solved.ok and solved.mistakes == []
    said = str(solved)
    assert said.startswith("data_parallel: solutions/data_parallel.py on node1 (rank 0)\n  ✔ the file ")
    assert said.endswith("\n\nAll 9 hold: this exercise is done.")


def test_starter_is_told_where_to_start(capsys):
    result = check("data_parallel")
    assert states(result) == {
        name: "holds" if name == "runs" else "open" if name == "trains" else "broken" for name in REQUIREMENTS
    }
    said = capsys.readouterr().out
    assert max(map(len, said.splitlines())) <= 100
    assert one_line(said).endswith(
        "Of a batch of 10 samples on 4 devices scatter made a single piece, so that only one device has work: "
        "cut the batch. Then: TODO 2, TODO 3, TODO 4, TODO 5, TODO 6 and TODO 7."
    )


RIGHT = {
    "cut by hand, cores as a pool": [
        (SCATTER, "[part.to(d) for part, d in zip(torch.split(batch, -(-len(batch) // len(devices))), devices)]"),
        (ADD, "                own.grad = gradient.clone() if own.grad is None else own.grad + gradient\n"),
        (GATHER, "torch.cat(outputs).to(device)"),
        ("wrapped.module.state_dict()", "{k[len('module.') :]: v for k, v in wrapped.state_dict().items()}"),
    ],
    "the model is the first replica": [
        (REPLICATE, "    return [model, *(copy.deepcopy(model).to(device) for device in devices[1:])]\n"),
        ("    for replica in replicas:\n", "    for replica in (one for one in replicas if one is not model):\n"),
    ],
    "errors as they come": [
        (ERRORS, "    for error in errors:\n        raise RuntimeError('a replica failed') from error\n"),
    ],
    "a pool of threads": [
        ("    threads = [threading.Thread(target=work, args=[number]) for number in range(len(replicas))]\n", ""),
        (
            THREADS[0],
            "    from concurrent.futures import ThreadPoolExecutor\n\n"
            "    with ThreadPoolExecutor(len(replicas)) as pool:\n"
            "        list(pool.map(work, range(len(replicas))))\n",
        ),
    ],
}


@pytest.mark.parametrize("way", RIGHT)
def test_other_right_ways_hold(way, tmp_path):
    result = check("data_parallel", file=edited(tmp_path, *RIGHT[way]))
    assert result.ok, result.mistakes


def test_a_file_that_does_not_run(tmp_path):
    renamed = [("def gather(", "def collect("), ("cross_entropy(gather(", "cross_entropy(collect(")]
    result = check("data_parallel", file=edited(tmp_path, *renamed))
    assert result.mistakes == ["mine.py has no function gather(outputs, device)"]
    assert {name for name, state in states(result).items() if state == "open"} == set(REQUIREMENTS) - {"runs"}


def test_an_error_at_import_names_no_rank(tmp_path):
    file = edited(tmp_path, ("import copy\n", "import copy\n\n1 / 0\n"))
    (mistake,) = check("data_parallel", file=file).mistakes
    assert mistake == f"mine.py, line {line_of(file, '1 / 0')}: ZeroDivisionError: division by zero"


def test_a_file_that_never_ends(tmp_path):
    file = edited(tmp_path, (f"    return {GATHER}\n", "    while True: pass\n"))
    (mistake,) = check("data_parallel", file=file, timeout=3).mistakes
    assert_says(mistake, "mine.py: it was still at line * while True: pass, after 3 s")


def test_ddp_still_wants_two_ranks():
    with pytest.raises(HostsError, match="two or more"):
        check("ddp", hosts="node1:1")
