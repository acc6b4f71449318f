"""What the experiments of mixed precision measure, against values worked out by hand."""

import argparse

import alone
import pytest
import torch
from distlab import process
from distlab.lessons.precision.experiments import casts as amp_casts
from distlab.lessons.precision.experiments import clip as amp_clip
from distlab.lessons.precision.experiments import formats as amp_formats
from distlab.lessons.precision.experiments import layout as amp_layout
from distlab.lessons.precision.experiments import speed as amp_speed
from distlab.lessons.precision.experiments import tf32 as amp_tf32
from distlab.lessons.precision.experiments import underflow as amp_underflow
from torch import nn

CPU = torch.device("cpu")
ALONE = process.Rank(0, 1, 0, 1, 0, "node1", "none", CPU, None, "")


# -- formats -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("value", "rounded"),
    [
        (1 + 2.0**-10, 1 + 2.0**-10),
        (1 + 2.0**-11, 1.0),
        (1 + 3 * 2.0**-11, 1 + 2.0**-9),
        (1 + 2.0**-11 + 2.0**-20, 1 + 2.0**-10),
        (-3.14159, -3.140625),
        (2 - 2.0**-20, 2.0),
        (0.0, 0.0),
    ],
)
def test_tf32_rounds_to_ten_bits_ties_to_even(value, rounded):
    assert amp_formats.to_tf32(torch.tensor([value])).item() == rounded


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float8_e5m2, torch.float8_e4m3fn])
def test_the_limits_are_those_of_numbers_that_exist(dtype):
    known = amp_formats.limits(dtype)
    smallest, half = torch.tensor([known["smallest"], known["smallest"] / 2]).to(dtype).float().tolist()
    assert (smallest, half) == (known["smallest"], 0.0)
    base, step, less = torch.tensor([1.0, 1 + known["step"], 1 + known["step"] / 2]).to(dtype).float().tolist()
    assert (base, step, less) == (1.0, 1 + known["step"], 1.0)


# -- casts ---------------------------------------------------------------------------------------


def test_rules_in_words():
    assert amp_casts.rule("bfloat16", "bfloat16") == "goes down to 16 bits"
    assert amp_casts.rule("float32", "float32") == "goes up to 32 bits"
    assert amp_casts.rule("float32", "float16") == "keeps what it is given"


# -- underflow -----------------------------------------------------------------------------------


def test_histogram_and_lost_count_zeros_apart():
    exact = torch.tensor([0.0, 1.0, 1.5, -0.25, 2.0**-30])
    assert amp_underflow.histogram(exact) == {"-30": 1, "-2": 1, "0": 2}
    assert amp_underflow.lost(exact, exact.half().float()) == 0.25


def test_gradients_are_scaled_back_and_those_of_outputs_are_of_every_layer():
    torch.manual_seed(0)
    net = nn.Sequential(nn.Flatten(), nn.Linear(12, 5), nn.Tanh(), nn.Linear(5, 3))
    images, labels = torch.randn(4, 1, 3, 4), torch.tensor([0, 1, 2, 0])
    once = amp_underflow.gradients(net, images, labels, None, 1.0)
    scaled = amp_underflow.gradients(net, images, labels, None, 1024.0)
    assert {kind: tensor.numel() for kind, tensor in once.items()} == {
        "outputs": 4 * (5 + 3),
        "weights": 12 * 5 + 5 + 15 + 3,
    }
    for kind in once:
        torch.testing.assert_close(scaled[kind], once[kind])
    # By hand: softmax minus one at the label, divided by the batch.
    logits = net(images)
    expected = (logits.softmax(1) - nn.functional.one_hot(labels, 3)) / 4
    torch.testing.assert_close(once["outputs"][-12:], expected.detach().flatten())


# -- clipping ------------------------------------------------------------------------------------


def test_the_gradient_is_a_copy():
    net = nn.Linear(2, 1)
    net(torch.ones(1, 2)).sum().backward()
    before = amp_clip.gradient(net)
    net.weight.grad.zero_()
    assert before.tolist() == [1, 1, 1]


# -- memory format -------------------------------------------------------------------------------


def test_layouts_have_names():
    batch = torch.randn(2, 3, 4, 5)
    turned = batch.contiguous(memory_format=torch.channels_last)
    assert [amp_layout.layout(images) for images in (batch, turned, turned[:, :2], batch[:, :1].clone())] == [
        "NCHW",
        "NHWC",
        "neither",
        "both",
    ]


@pytest.mark.parametrize("memory_format", [torch.contiguous_format, torch.channels_last])
def test_places_are_the_order_in_memory(memory_format):
    numbers = torch.arange(24.0).reshape(1, 2, 3, 4).contiguous(memory_format=memory_format)
    in_memory = torch.as_strided(numbers, (24,), (1,)).tolist()
    assert [numbers[0, c, h, w].item() for c, h, w in amp_layout.places(numbers)] == in_memory


def test_hooks_see_each_layer_that_gives_images_once_and_are_gone_afterwards():
    net = amp_layout.net().to(memory_format=torch.channels_last)
    batch = torch.randn(2, 3, 16, 16).contiguous(memory_format=torch.channels_last)
    seen = amp_layout.layouts(net, batch)
    assert [record["layer"].split()[1] for record in seen] == [
        *("Conv2d", "BatchNorm2d", "ReLU", "Shuffle", "ReLU", "MaxPool2d", "Conv2d", "ReLU", "AdaptiveAvgPool2d"),
    ]
    assert [record["gives"] for record in seen[2:4]] == ["NHWC", "NCHW"]
    assert not any(layer._forward_hooks for layer in net.modules())


def test_shuffle_mixes_the_channels_of_two_groups():
    images = torch.arange(4.0).reshape(1, 4, 1, 1)
    assert amp_layout.Shuffle()(images).flatten().tolist() == [0, 2, 1, 3]


# -- cost of a step ------------------------------------------------------------------------------


def arguments(**more):
    return argparse.Namespace(**{"batch_size": 2, "pixels": 8, "width": 8} | more)


def test_rows_train_the_same_network():
    dtype = torch.bfloat16
    losses = {
        name: amp_speed.Row(ALONE, name, arguments(), dtype).forward().item() for name in list(amp_speed.ROWS)[:4]
    }
    assert losses["channels_last"] == pytest.approx(losses["float32"], abs=1e-5)
    assert losses["both"] == pytest.approx(losses["float32"], abs=0.05)
    assert len({losses["float32"], losses["autocast"]}) == 2
    row = amp_speed.Row(ALONE, "both", arguments(), dtype)
    assert amp_layout.layout(row.images) == "NHWC" and row.step() > 0 and row.peak_bytes() is None


def test_compiling_needs_a_compiler(monkeypatch):
    monkeypatch.setattr("shutil.which", lambda name: None)
    assert amp_speed.no_compiler(CPU) == "no C++ compiler here"
    assert amp_speed.no_compiler(torch.device("cuda")) == "no C compiler here"
    monkeypatch.setattr("shutil.which", lambda name: name if name == "g++" else None)
    assert amp_speed.no_compiler(CPU) is None


@pytest.fixture
def reported(tmp_path):
    """The rows that the experiment reports with the options given, in this process."""
    small = ("--rounds", 1, "--width", 8, "--pixels", 8, "--batch-size", 2)

    def run(*words):
        records = alone.report_of(amp_speed, tmp_path, *small, *words)
        return {record["name"]: record for record in records if record["event"] == "row"}

    return run


def test_a_row_that_cannot_be_compiled_says_why(reported, monkeypatch):
    monkeypatch.setattr("shutil.which", lambda name: None)
    rows = reported("--compile")
    assert list(rows) == list(amp_speed.ROWS)
    assert rows["both, compiled"]["why_not"] == "no C++ compiler here"
    assert all(record["milliseconds"] > 0 and record["kept_bytes"] > 0 for record in list(rows.values())[:4])


def test_a_row_whose_compilation_fails_says_so_and_the_others_are_measured(reported, monkeypatch):
    def broken(net):
        def fail(images):
            raise RuntimeError("Python.h: no such file")

        return fail

    monkeypatch.setattr("shutil.which", lambda name: name)
    monkeypatch.setattr(torch, "compile", broken)
    rows = reported("--compile")
    assert rows["both, compiled"]["why_not"] == "torch.compile: RuntimeError"
    assert rows["both"]["milliseconds"] > 0


# -- tf32 ----------------------------------------------------------------------------------------


def test_the_switch_of_this_device_knows_its_positions():
    holder = amp_tf32.switch(CPU)
    before = holder.fp32_precision
    try:
        for mode in amp_tf32.modes(CPU):
            holder.fp32_precision = mode
            assert holder.fp32_precision == mode
    finally:
        holder.fp32_precision = before
    assert amp_tf32.modes(torch.device("cuda")) == ("ieee", "tf32")
