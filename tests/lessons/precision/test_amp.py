"""scripts/amp.py against ddp.py, which trains the same in float32."""

import contextlib
import difflib
import io
import os
import subprocess
import sys
from pathlib import Path

import distlab
import numpy as np
import pytest
import start_ranks
import torch
import training_jobs as jobs
from distlab import checkpoint, data, models, process, report
from distlab.scripts import amp, ddp
from torch import nn

SCRIPTS = Path(distlab.__file__).parent / "scripts"
SCRIPT_OF = {"amp": amp, "ddp": ddp}


@pytest.fixture(scope="module")
def root(tmp_path_factory):
    """A folder with scikit-learn's digits prepared."""
    root = tmp_path_factory.mktemp("data")
    data.prepare("digits", root=root)
    return root


def train(script, words):
    """Train; what was printed, and for each convolution but the first whether its input was channels_last."""
    seen, build = [], models.build

    def watched(*arguments, **options):
        net = build(*arguments, **options)
        for layer in [layer for layer in net.modules() if isinstance(layer, nn.Conv2d)][1:]:
            layer.register_forward_pre_hook(lambda _, inputs: seen.append(layout(inputs[0])))
        return net

    models.build = watched
    with contextlib.redirect_stdout(io.StringIO()) as said:
        records = SCRIPT_OF[script].main(["--data", "digits", *map(str, words)])
    return {"records": records, "said": said.getvalue(), "layouts": set(seen)}


def layout(tensor):
    return "channels_last" if tensor.is_contiguous(memory_format=torch.channels_last) else "contiguous"


@pytest.fixture(scope="module")
def trained(root, tmp_path_factory):
    """Trains with a script and options on two ranks of 16 samples, once for the same ones."""
    cache = {}

    def on_two_ranks(script, *words, ranks=2):
        key = (script, ranks, *words)
        if key not in cache:
            folder = tmp_path_factory.mktemp("run")
            options = ["--data-root", root, "--limit", 480, "--batch-size", 16, "--warmup-epochs", 0, *words]
            answers = start_ranks.run(ranks, train, script, options, folder=folder)
            records = report.read(folder)
            cache[key] = {
                "ranks": answers,
                "file": folder / "checkpoint.pt",
                "state": checkpoint.read(folder / "checkpoint.pt"),
                "weights": jobs.read_weights(folder / "checkpoint.pt"),
                "scale": [[r for r in records if (r["event"], r["rank"]) == ("scale", rank)] for rank in (0, 1)],
            }
        return cache[key]

    return on_two_ranks


def losses(run):
    return [(record["loss"], record["val_loss"]) for record in run["ranks"][0]["records"]]


def start_of(root):
    """The weights that every run starts from."""
    return jobs.weights(models.build(models.DEFAULT, 1, 10, 8, 8, seed=0))


def furthest(weights, others):
    return np.abs(weights - others).max()


@pytest.mark.parametrize("words", [(), ("--accumulate", 2)], ids=["plain", "accumulated"])
def test_off_is_ddp_to_the_digit(trained, words):
    plain, off = trained("ddp", *words), trained("amp", "--amp", "off", *words)
    np.testing.assert_array_equal(off["weights"], plain["weights"])
    assert losses(off) == losses(plain)
    assert off["scale"] == [[], []] and off["state"]["kept"] == {"scaler": {}}


# A scale at which nothing overflows here, so that both take the same steps.
FP16 = ("--amp", "fp16", "--loss-scale", 1024)


@pytest.mark.parametrize(
    "words",
    [(), ("--accumulate", 3), ("--clip", 0.5), ("--accumulate", 3, "--clip", 0.5)],
    ids=["plain", "accumulated", "clipped", "both"],
)
@pytest.mark.parametrize("kind", [("--amp", "bf16"), FP16], ids=["bf16", "fp16"])
def test_sixteen_bits_train_what_thirty_two_train(trained, root, kind, words):
    whole, half = trained("amp", "--amp", "off", *words), trained("amp", *kind, *words)
    way = furthest(whole["weights"], start_of(root))
    assert 0 < furthest(half["weights"], whole["weights"]) < 0.1 * way
    for mine, twin in zip(losses(half), losses(whole), strict=True):
        assert mine == pytest.approx(twin, abs=0.02)
    assert half["scale"] == [[], []]


def test_clipping_shortens_every_step(trained, root):
    """Momentum 0.9 and rate 0.04: no step is longer than 0.04 * 10 * NORM, whatever the loss was scaled by."""
    clipped, plain = trained("amp", *FP16, "--clip", 0.5), trained("amp", *FP16)
    steps = clipped["state"]["steps"]
    length = np.linalg.norm(clipped["weights"] - start_of(root))
    assert 0.1 < length < steps * 0.04 * 10 * 0.5
    assert furthest(plain["weights"], start_of(root)) > 10 * furthest(clipped["weights"], start_of(root))


def test_channels_last_trains_the_same_in_its_own_layout(trained):
    usual, turned = trained("amp", "--amp", "off"), trained("amp", "--amp", "off", "--channels-last")
    np.testing.assert_allclose(turned["weights"], usual["weights"], atol=1e-5)
    assert usual["ranks"][1]["layouts"] == {"contiguous"}
    assert turned["ranks"][1]["layouts"] == {"channels_last"}


def test_an_overflow_skips_the_step_on_all_ranks_and_changes_nothing(trained, root):
    run = trained("amp", "--amp", "fp16", "--loss-scale", 2.0**40, "--max-steps", 3)
    np.testing.assert_array_equal(run["weights"], start_of(root))
    for skips in run["scale"]:
        scales = [(record["before"], record["after"]) for record in skips]
        assert scales == [(2.0**n, 2.0 ** (n - 1)) for n in (40, 39, 38)]
    assert run["state"]["kept"]["scaler"]["scale"] == 2.0**37


def test_a_resumed_run_goes_on_with_its_scale(trained):
    words = ("--amp", "fp16", "--loss-scale", 2.0**24)
    whole = trained("amp", *words)
    half = trained("amp", *words, "--max-steps", 12)
    rest = trained("amp", *words, "--resume", half["file"])
    assert len(half["scale"][0]) > 5
    np.testing.assert_array_equal(rest["weights"], whole["weights"])
    assert rest["state"]["kept"] == whole["state"]["kept"]
    assert half["scale"][1][-1]["after"] < 2.0**20
    assert len(half["scale"][1]) + len(rest["scale"][1]) == len(whole["scale"][1])


def test_a_checkpoint_without_a_scale_starts_a_new_one_and_says_so(trained):
    half = trained("ddp", "--max-steps", 12)
    rest = trained("amp", *FP16, "--resume", half["file"])
    assert "the checkpoint holds no state of the scaler: it starts anew" in rest["ranks"][0]["said"]
    assert rest["state"]["kept"]["scaler"]["scale"] == 1024
    whole = trained("amp", "--amp", "off")
    for mine, twin in zip(losses(rest), losses(whole), strict=True):
        assert mine == pytest.approx(twin, abs=0.02)


def test_a_checkpoint_with_a_scale_goes_on_without_one(trained):
    half = trained("amp", *FP16, "--max-steps", 12)
    rest = trained("ddp", "--resume", half["file"])
    assert "scaler" not in rest["ranks"][0]["said"]
    assert rest["state"]["steps"] == 15


def test_a_loss_that_is_no_number_is_no_overflow_of_gradients(root, tmp_path):
    words = ["--data-root", root, "--limit", 480, "--batch-size", 16, "--amp", "fp16", "--lr", 1e6, "--loss-scale", 1]
    answers = start_ranks.run(2, train, "amp", words, folder=tmp_path, may_raise=True)
    assert any("LossError: rank" in what and "lower --lr" in what for how, what, *_ in answers if how == "raised")
    assert [how for how, *_ in answers] == ["raised", "raised"]


def test_it_runs_as_a_file_by_itself(root, tmp_path):
    environment = {key: value for key, value in os.environ.items() if key not in ("RANK", "WORLD_SIZE")}
    environment |= {
        "DISTLAB_RUN_DIR": str(tmp_path),
        "TQDM_DISABLE": "1",
        "DISTLAB_DEVICE": "cpu",
        "OMP_NUM_THREADS": "1",
    }
    words = ["--data", "digits", "--data-root", root, "--limit", 100, "--channels-last", "--clip", 1]
    done = subprocess.run(
        list(map(str, [sys.executable, SCRIPTS / "amp.py", *words])),
        env=environment,
        capture_output=True,
        text=True,
        timeout=100,
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert "epoch 1: loss" in done.stdout
    (epoch,) = [record for record in report.read(tmp_path) if record["event"] == "epoch"]
    assert epoch["steps"] == 2


def test_the_diff_is_the_lesson():
    before, after = ((SCRIPTS / f"{name}.py").read_text().splitlines() for name in ("ddp", "amp"))
    changes = [line for line in difflib.ndiff(before, after) if line[0] in "+-"]
    code = "\n".join(line for line in changes if line[0] == "+")
    for word in ("torch.amp.GradScaler(", "loop.MixedStep(", "memory_format=layout", 'keep={"scaler": scaler}'):
        assert word in code, word
    assert len([line for line in changes if line[0] == "-"]) <= 6
    for path in (SCRIPTS / "amp.py", SCRIPTS.parent / "loop" / "mixed.py"):
        assert len(path.read_text().splitlines()) <= 45, "the lesson shows it on one screen"
        assert max(map(len, path.read_text().splitlines())) <= 110


# -- which type a device is for ------------------------------------------------------------------


def rank_on(device):
    return process.Rank(0, 1, 0, 1, 0, "node1", "none", torch.device(device), None, "")


@pytest.fixture
def cpu_with(monkeypatch):
    def has(*names):
        monkeypatch.setattr(
            torch.cpu, "get_capabilities", lambda: {"cpu_name": "some CPU", **dict.fromkeys(names, True)}
        )

    return has


@pytest.fixture
def gpu_of(monkeypatch):
    def capability(*version):
        monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device: version)

    return capability


def test_units_of_a_cpu(cpu_with):
    cpu_with("avx2", "avx512_bf16", "amx_bf16", "avx512_fp16")
    assert process.units(torch.device("cpu")) == {
        "bf16": ["avx512_bf16", "amx_bf16"],
        "fp16": ["avx512_fp16"],
        "tf32": [],
    }
    assert process.device_name(torch.device("cpu")) == "some CPU"


@pytest.mark.parametrize(
    ("version", "kinds"),
    [((9, 0), ["bf16", "fp16", "tf32"]), ((7, 5), ["fp16"]), ((6, 1), [])],
    ids=["Hopper", "Turing", "Pascal"],
)
def test_units_of_a_gpu(gpu_of, version, kinds):
    gpu_of(*version)
    has = process.units(torch.device("cuda"))
    assert [kind for kind, names in has.items() if names] == kinds
    assert all(names in ([], [f"tensor cores {version[0]}.{version[1]}"]) for names in has.values())


def test_a_type_without_units_is_said_aloud(cpu_with, capsys):
    cpu_with("avx2")
    assert process.amp_dtype(rank_on("cpu")) is torch.bfloat16
    assert capsys.readouterr().out == ("bf16 on a cpu without units for it: expect it to be slower than --amp off\n")
    cpu_with("avx512_bf16")
    assert process.amp_dtype(rank_on("cpu")) is torch.bfloat16
    assert process.amp_dtype(rank_on("cpu"), "off") is None
    assert capsys.readouterr().out == ""


def test_a_gpu_for_fp16_alone_gets_fp16(gpu_of):
    gpu_of(7, 5)
    assert process.amp_dtype(rank_on("cuda")) is torch.float16
    gpu_of(8, 0)
    assert process.amp_dtype(rank_on("cuda")) is torch.bfloat16
    assert process.amp_dtype(rank_on("cuda"), "fp16") is torch.float16


def test_an_unknown_type_is_refused(cpu_with):
    cpu_with()
    with pytest.raises(ValueError, match="no type 'fp8' for mixed precision: use bf16, fp16 or off"):
        process.amp_dtype(rank_on("cpu"), "fp8")
