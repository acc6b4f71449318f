"""The lessons' scripts as people start them: as files, alone or under torchrun."""

import contextlib
import difflib
import io
import os
import re
import socket
import subprocess
import sys
from pathlib import Path

import ddp_tutorial
import distlab
import numpy as np
import pytest
import start_ranks
import training_jobs as jobs
from distlab import data, report
from distlab.process import read_placement
from distlab.scripts import env_report

SCRIPTS = Path(distlab.__file__).parent / "scripts"
DRILL = SCRIPTS.parents[1] / "ddp_tutorial.py"
VARIABLES = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT", "DISTLAB_RUN_DIR")


@pytest.fixture(scope="module")
def root(tmp_path_factory):
    """A folder with scikit-learn's digits prepared."""
    root = tmp_path_factory.mktemp("data")
    data.prepare("digits", root=root)
    return root


def start(command, folder, **variables):
    environment = {key: value for key, value in os.environ.items() if key not in VARIABLES}
    environment |= {
        "DISTLAB_RUN_DIR": str(folder),
        "TQDM_DISABLE": "1",
        "OMP_NUM_THREADS": "1",
        "DISTLAB_DEVICE": "cpu",
        **variables,
    }
    return subprocess.Popen(
        list(map(str, command)), env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )


def finish(process, seconds=120):
    try:
        output, errors = process.communicate(timeout=seconds)
    finally:
        process.kill()
    return process.returncode, output, errors


def torchrun(ranks):
    return [
        sys.executable,
        "-m",
        "torch.distributed.run",
        "--nproc-per-node",
        ranks,
        "--master-addr",
        "127.0.0.1",
        "--master-port",
        start_ranks.free_port(),
    ]


@pytest.fixture(scope="module")
def runs(root, tmp_path_factory):
    """single.py on a batch of 32; ddp.py alone on 32, and on two ranks of 16 each. The rates are the same."""
    folder = tmp_path_factory.mktemp("runs")
    common = ("--data", "digits", "--data-root", root, "--limit", 500, "--warmup-epochs", 0)
    commands = {
        "single": [sys.executable, SCRIPTS / "single.py", *common, "--batch-size", 32, "--lr", 0.04],
        "alone": [sys.executable, SCRIPTS / "ddp.py", *common, "--batch-size", 32, "--lr", 0.04],
        "two": [*torchrun(2), SCRIPTS / "ddp.py", *common, "--batch-size", 16, "--lr", 0.02],
    }
    started = {name: start(command, folder / name) for name, command in commands.items()}
    ended = {name: finish(process) for name, process in started.items()}
    for name, (status, _, errors) in ended.items():
        assert status == 0, f"{name}: {errors}"
    return {
        name: {
            "said": output,
            "errors": errors,
            "records": report.read(folder / name),
            "weights": jobs.read_weights(folder / name / "checkpoint.pt"),
        }
        for name, (_, output, errors) in ended.items()
    }


def epochs(run):
    return [record for record in run["records"] if record["event"] == "epoch"]


def test_all_three_train_the_same_network(runs):
    for name, tolerance in (("alone", 1e-7), ("two", 1e-5)):
        np.testing.assert_allclose(runs[name]["weights"], runs["single"]["weights"], atol=tolerance)
        (expected,) = epochs(runs["single"])
        for record in epochs(runs[name]):
            for key in ("loss", "accuracy", "val_loss", "val_accuracy", "val_images", "lr", "steps"):
                assert record[key] == pytest.approx(expected[key], abs=1e-5), key
    assert epochs(runs["single"])[0]["val_accuracy"] > 0.3
    assert epochs(runs["single"])[0]["val_images"] == 100


def test_ranks_share_the_images(runs):
    assert [record["images"] for record in epochs(runs["single"])] == [500]
    assert [record["images"] for record in epochs(runs["two"])] == [250, 250]
    assert [record["rank"] for record in runs["two"]["records"] if record["event"] == "end"] == [0, 1]
    known = [record for record in runs["two"]["records"] if record["event"] == "data"]
    assert [(record["train"], record["val"], record["data"]) for record in known] == [(500, 100, "digits")] * 2


def test_no_warning_that_nobody_can_act_on(runs):
    assert runs["single"]["errors"] == ""
    assert runs["alone"]["errors"] == ""
    # torchrun says in a few lines that it sets OMP_NUM_THREADS when it is not set; here it is.
    assert runs["two"]["errors"] == ""


def test_rank_0_says_what_is_happening(runs):
    assert "1 rank x 32 = 32 samples per update; 1 thread per rank\nlearning rate 0.04\n" in runs["single"]["said"]
    assert "2 ranks x 16 = 32 samples per update" not in runs["single"]["said"]
    assert runs["two"]["said"].count("samples per update") == 1
    assert re.search(r"epoch 1: loss \d\.\d{3}, accuracy 0\.\d{3}, validation loss", runs["two"]["said"])


def source(name):
    return (SCRIPTS / f"{name}.py").read_text().splitlines()


@pytest.mark.parametrize("path", [*SCRIPTS.glob("*.py"), DRILL], ids=lambda path: path.name)
def test_a_script_fits_a_screen_s_width(path):
    assert max(map(len, path.read_text().splitlines()), default=0) <= 120


def test_the_diff_is_the_lesson():
    changes = [line for line in difflib.ndiff(source("single"), source("ddp")) if line[0] in "+-"]
    code = "\n".join(changes)
    for word in ("process.group()", "DistributedSampler", "DistributedDataParallel(model)", "data.shard", "scaled_lr"):
        assert re.search(rf"^\+ .*{re.escape(word)}", code, re.MULTILINE), word
    assert len([line for line in changes if line[0] == "+"]) <= 12
    assert max(len(source(name)) for name in ("single", "ddp")) <= 40


def ask_for_table(folder):
    with contextlib.redirect_stdout(io.StringIO()) as said:
        rows = env_report.main([])
    return said.getvalue(), rows


def too_many_ranks(root):
    from distlab.scripts import ddp

    return ddp.main(["--data", "digits", "--data-root", str(root), "--limit", "1", "--no-checkpoint"])


def test_env_report_is_a_table_in_rank_order(tmp_path):
    answers = start_ranks.run(2, ask_for_table, tmp_path, folder=tmp_path, DISTLAB_HOST="node7")
    (said, rows), (said_by_1, rows_of_1) = answers
    header, *lines = [line.split() for line in said.splitlines()[2:]]
    assert said.splitlines()[1] == "started by torchrun"
    assert header == [
        "host",
        "RANK",
        "LOCAL_RANK",
        "GROUP_RANK",
        "LOCAL_WORLD_SIZE",
        "WORLD_SIZE",
        "device",
        "backend",
        "threads",
        "pid",
    ]
    assert [line[:9] for line in lines] == [["node7", *f"{rank} {rank} 0 2 2 cpu gloo 1".split()] for rank in (0, 1)]
    starts = {tuple(found.start() for found in re.finditer(r"\S+", line)) for line in said.splitlines()[2:]}
    assert len(starts) == 1, "columns are not aligned"
    assert said_by_1 == "" and rows == rows_of_1
    records = report.read(tmp_path)
    assert [(record["event"], record["rank"], record["LOCAL_RANK"]) for record in records] == [
        ("env", 0, 0),
        ("env", 1, 1),
    ]
    assert [record["pid"] for record in records] == [int(line[9]) for line in lines]


@pytest.mark.parametrize(
    "variables",
    [
        {},
        {"OMPI_COMM_WORLD_RANK": "0", "OMPI_COMM_WORLD_SIZE": "1", "OMPI_COMM_WORLD_LOCAL_RANK": "0"},
        {"SLURM_PROCID": "0", "SLURM_NTASKS": "1", "SLURM_LOCALID": "0", "SLURM_NODEID": "0"},
    ],
    ids=["by itself", "mpirun", "srun"],
)
def test_env_report_of_one_process(tmp_path, monkeypatch, variables):
    for name in (*VARIABLES, "TORCHELASTIC_USE_AGENT_STORE"):
        monkeypatch.delenv(name, raising=False)
    for name, value in {**variables, "DISTLAB_RUN_DIR": str(tmp_path), "DISTLAB_DEVICE": "cpu"}.items():
        monkeypatch.setenv(name, value)
    said, rows = ask_for_table(tmp_path)
    assert len(rows) == 1 and rows[0]["WORLD_SIZE"] == 1
    assert said.splitlines()[-1].split()[1:8] == ["0", "0", "0", "1", "1", "cpu", "gloo"]


def train_alone():
    from distlab.scripts import single

    return single.main([])


def test_single_refuses_to_train_twice_side_by_side(tmp_path):
    for how, what, _ in start_ranks.run(2, train_alone, folder=tmp_path, may_raise=True):
        assert how == "raised"
        assert "is written for one process but was started as 2 ranks" in what


def test_more_ranks_than_samples_is_one_sentence(root, tmp_path):
    answers = start_ranks.run(2, too_many_ranks, root, folder=tmp_path, may_raise=True)
    for how, what, _ in answers:
        assert how == "raised"
        assert what.startswith("SettingError: 2 ranks cannot share 1 sample")


def drill(folder, *arguments, **variables):
    return start([sys.executable, DRILL, *arguments], folder, **variables)


# Python imports this module before any script; it lists the threads when Python ends.
LIST_THREADS = """
import atexit, gc, os

gc.disable()  # else it may run by chance

@atexit.register
def list_threads():
    print("at the end:", *(open(f"/proc/self/task/{task}/comm").read() for task in os.listdir("/proc/self/task")))
"""


@pytest.fixture(scope="module")
def drilled(root, tmp_path_factory):
    """What two ranks of the drill, started by hand, wrote to stdout."""
    folder = tmp_path_factory.mktemp("drill")
    (folder / "sitecustomize.py").write_text(LIST_THREADS)
    where = {"WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(start_ranks.free_port())}
    path = os.pathsep.join(filter(None, (str(folder), os.environ.get("PYTHONPATH"))))
    words = ("--data", "digits", "--steps", "5")
    started = [drill(folder, rank, rank, *words, DISTLAB_DATA=str(root), PYTHONPATH=path, **where) for rank in (0, 1)]
    ended = [finish(process) for process in started]
    for status, _, errors in ended:
        assert status == 0, errors
    return [output for _, output, _ in ended]


def test_the_drill_by_hand(drilled):
    lines = [line for line in drilled[0].splitlines() if line.startswith("rank ")]
    found = [re.fullmatch(r"rank (\d) of 2 on .*: 5 steps, 320 images, .*sum of weights (\S+)", line) for line in lines]
    assert [line[1] for line in found] == ["0", "1"]
    assert found[0][2] == found[1][2]
    assert "rank 1 of" not in drilled[1]


def test_no_thread_of_gloo_is_left_when_python_ends(drilled):
    for output in drilled:
        threads = output.partition("at the end:")[2]
        assert "python" in threads
        assert "gloo" not in threads, "a rank with such a thread can abort at its end"


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ((), "the following arguments are required: RANK, GPU"),
        (("0",), "the following arguments are required: GPU"),
        (("zero", "0"), "argument RANK: invalid int value: 'zero'"),
        (("0", "-1"), "RANK and GPU count from 0"),
        (("4", "0"), "rank 4 lies outside WORLD_SIZE=4"),
    ],
)
def test_the_drill_refuses_bad_arguments_before_it_waits_for_anyone(tmp_path, arguments, said):
    status, output, errors = finish(drill(tmp_path, *arguments), seconds=10)
    assert status != 0 and output == ""
    assert said in errors and "Traceback" not in errors


@pytest.fixture
def without_variables(monkeypatch):
    for name in (*VARIABLES, "OMP_NUM_THREADS"):
        # Set first, so that what the drill sets itself is undone too.
        monkeypatch.setenv(name, "")
        monkeypatch.delenv(name)


@pytest.mark.parametrize(("rank", "gpu", "group"), [(0, 0, 0), (1, 1, 0), (2, 0, 1), (3, 1, 1)])
def test_the_drill_s_variables(monkeypatch, without_variables, rank, gpu, group):
    monkeypatch.setattr("socket.getaddrinfo", lambda *where: [])
    ddp_tutorial.set_variables(rank, gpu)
    at = read_placement()
    assert (at.rank, at.world_size, at.local_rank, at.local_world_size, at.host_index) == (rank, 4, gpu, 2, group)
    assert (os.environ["MASTER_ADDR"], os.environ["MASTER_PORT"]) == ("node1", "29500")


def test_the_drill_on_one_machine_says_so(monkeypatch, without_variables, capsys):
    def unknown(*where):
        raise socket.gaierror("Name or service not known")

    monkeypatch.setattr("socket.getaddrinfo", unknown)
    ddp_tutorial.set_variables(0, 0)
    assert os.environ["MASTER_ADDR"] == "127.0.0.1"
    assert "node1 is no name here" in capsys.readouterr().out
    monkeypatch.setenv("MASTER_ADDR", "10.0.0.7")
    ddp_tutorial.set_variables(1, 1)
    assert os.environ["MASTER_ADDR"] == "10.0.0.7"
    assert capsys.readouterr().out == ""
