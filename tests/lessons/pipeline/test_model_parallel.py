"""A model over two devices computes what it computes on one, plain and in pieces."""

import copy
import difflib
from pathlib import Path

import pytest
import torch
from alone import in_folder
from distlab import checkpoint, data, loop, models, process
from distlab.scripts import language, model_parallel
from distlab.stages.devices import OnDevices
from torch import nn
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.nn.functional import cross_entropy

CPU = torch.device("cpu")
ALONE = process.Rank(0, 1, 0, 1, 0, "node1", "none", CPU, None, "")
LAYERS, CONTEXT = 5, 8


def net(tied=False, seed=0):
    return models.LanguageModel(LAYERS, 16, 2, CONTEXT, tied=tied, seed=seed)


def over_two(model, splits=1):
    return OnDevices(copy.deepcopy(model), [CPU, CPU], splits)


def batch(size):
    dice = torch.Generator().manual_seed(size)
    text = torch.randint(256, (size, CONTEXT + 1), generator=dice)
    return text[:, :-1], text[:, 1:]


def gradients(model):
    return {name: parameter.grad for name, parameter in model.named_parameters()}


@pytest.mark.parametrize("tied", [False, True])
@pytest.mark.parametrize(("size", "splits"), [(6, 1), (6, 2), (6, 4), (7, 3), (3, 8), (1, 2)])
def test_outputs_and_gradients_equal_the_model_in_one_place(tied, size, splits):
    alone = net(tied).double()
    parts = over_two(alone, splits)
    x, y = batch(size)
    for model in (alone, parts):
        # Twice, so that gradients add up on what is there.
        for _ in range(2):
            cross_entropy(model(x), y).backward()
    torch.testing.assert_close(parts(x), alone(x), rtol=0, atol=1e-12)
    torch.testing.assert_close(gradients(parts), gradients(alone), rtol=0, atol=1e-12)
    assert min(gradient.abs().max() for gradient in gradients(alone).values()) > 1e-6


@pytest.mark.parametrize("tied", [False, True])
def test_names_and_order_of_weights_are_those_of_the_whole_model(tied):
    alone = net(tied)
    parts = over_two(alone)
    assert list(parts.state_dict()) == list(alone.state_dict())
    assert [name for name, _ in parts.named_parameters()] == [name for name, _ in alone.named_parameters()]
    other = net(tied, seed=1)
    checkpoint.load_model(other, parts.state_dict())
    back = over_two(net(tied, seed=2))
    checkpoint.load_model(back, alone.state_dict())
    x, _ = batch(4)
    assert torch.equal(other(x), alone(x)) and torch.equal(back(x), alone(x))


def test_each_stage_has_its_part_and_nothing_of_the_other():
    first, second = over_two(net()).stages
    assert (list(first.blocks), list(second.blocks)) == (["0", "1", "2"], ["3", "4"])
    assert (
        first.head is None
        and first.norm is None
        and second.token_embedding is None
        and second.positional_embedding is None
    )


class Noted(OnDevices):
    """Remembers what went through which stage, in order."""

    def work(self, stage, x):
        self.seen.append((stage, len(x), x.device, self.devices[stage]))
        return super().work(stage, x)


@pytest.mark.parametrize(
    ("size", "splits", "pieces"), [(8, 1, [8]), (8, 4, [2] * 4), (7, 3, [3, 3, 1]), (6, 4, [2] * 3), (2, 4, [1, 1])]
)
def test_a_piece_is_handed_to_stage_1_before_the_next_to_stage_0(size, splits, pieces):
    model = Noted(net(), [CPU, CPU], splits)
    model.seen = []
    assert model(batch(size)[0]).shape == (size, 256, CONTEXT)
    assert [call[:2] for call in model.seen] == [(stage, piece) for piece in pieces for stage in (0, 1)]


def move(module, device):
    """What `Module.to` does, for the fake tensors that it cannot move: all that hold a parameter hold the new one."""
    for layer in module.modules():
        for name, weight in layer._parameters.items():
            if weight is not None:
                moved = nn.Parameter(weight.detach().to(device))
                for other in module.whole.modules():
                    for place, found in other._parameters.items():
                        if found is weight:
                            other._parameters[place] = moved
                assert layer._parameters[name] is moved
    return module


@pytest.mark.parametrize("tied", [False, True])
@pytest.mark.parametrize("labels_at", [0, 1])
def test_weights_are_on_two_gpus_and_what_goes_through_follows(tied, labels_at, monkeypatch):
    monkeypatch.setattr(models.LanguageModel, "to", move)
    gpus = [torch.device("cuda", 0), torch.device("cuda", 1)]
    # Fake tensors have a device and a shape, and refuse to be mixed with those of another device.
    with FakeTensorMode():
        whole = net(tied)
        whole.__dict__["whole"] = whole
        model = Noted(whole, gpus, microbatches=2)
        model.seen = []
        logits = model(torch.zeros(4, CONTEXT, dtype=torch.int64, device=gpus[labels_at]))
    assert logits.device == gpus[labels_at] and logits.shape == (4, 256, CONTEXT)
    assert [call[2:] for call in model.seen] == [(gpus[labels_at], gpus[0]), (gpus[0], gpus[1])] * 2
    firsts = "token_embedding", "positional_embedding", "blocks.0", "blocks.1", "blocks.2"
    on_first = {name for name, parameter in model.named_parameters() if parameter.device == gpus[0]}
    names = {name for name, _ in model.named_parameters()}
    assert on_first == {name for name in names if name.startswith(firsts)}
    assert {parameter.device for name, parameter in model.named_parameters() if name not in on_first} == {gpus[1]}


def test_too_few_layers_are_one_sentence():
    with pytest.raises(ValueError, match="1 layers cannot be cut into 2 stages: use --layers 2 or more"):
        OnDevices(models.LanguageModel(1, 16, 2, CONTEXT), [CPU, CPU])


def test_training_and_evaluation_modes_reach_the_parts():
    model = over_two(net())
    assert not any(layer.training for layer in model.eval().stages[1].blocks["4"].modules())


# -- training ----------------------------------------------------------------------------------------


def train(model):
    words = ["--lr", "0.01", "--batch-size", "12", "--no-checkpoint", "--context", str(CONTEXT), "--accumulate", "2"]
    args = loop.text_options().parse_args(words)
    text = data.sequences(3000, CONTEXT)
    batches = data.loader(text.train, args.batch_size, sampler=loop.Shuffle(text.train))
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01, eps=1e-6)
    return loop.fit(ALONE, model, optimizer, batches, data.loader(text.val, 12), args)


@pytest.fixture
def folder(tmp_path):
    """Where runs of this process leave their files."""
    with in_folder(tmp_path):
        yield tmp_path


@pytest.mark.parametrize("tied", [False, True])
@pytest.mark.parametrize("splits", [1, 5])
def test_fit_trains_the_same_network(tied, splits, folder):
    alone = net(tied).double()
    parts = over_two(alone, splits)
    expected, found = train(alone), train(parts)
    for want, other in zip(expected, found, strict=True):
        for key in ("loss", "accuracy", "val_loss", "val_accuracy", "val_images", "steps"):
            assert other[key] == pytest.approx(want[key], abs=1e-9), key
    torch.testing.assert_close(parts.state_dict(), alone.state_dict(), rtol=0, atol=1e-9)
    assert expected[0]["steps"] > 10


SMALL = [
    "--layers",
    "4",
    "--embedding-dim",
    "16",
    "--heads",
    "2",
    "--context",
    "16",
    "--limit",
    "4000",
    "--generate",
    "8",
]


@pytest.mark.parametrize("tied", [[], ["--tied"]])
def test_a_checkpoint_goes_on_in_both(folder, tied):
    """Some updates on one device, the rest on two and the other way round, as all of them on one."""

    def run(script, file, *words):
        script.main([*SMALL, *tied, "--checkpoint", str(folder / file), *words])
        return checkpoint.read(folder / file)

    whole = run(language, "whole.pt")
    for first, second in ((language, model_parallel), (model_parallel, language)):
        name = f"{first.__name__}.pt"
        pieces = {model_parallel: ["--microbatches", "3"], language: []}
        half = run(first, name, "--max-steps", "4", *pieces[first])
        assert 0 < half["consumed"] < half["samples"]
        both = run(second, name, "--resume", *pieces[second])
        assert both["steps"] == whole["steps"] > 6
        torch.testing.assert_close(both["model"], whole["model"], rtol=0, atol=1e-4)
        assert not torch.equal(half["model"]["blocks.3.mlp.2.weight"], whole["model"]["blocks.3.mlp.2.weight"])


def test_it_writes_what_the_model_in_one_place_writes(folder, capsys):
    said = []
    for script in (language, model_parallel):
        script.main([*SMALL, "--no-checkpoint", "--max-steps", "3"])
        said.append(capsys.readouterr().out.splitlines()[4:])
    assert said[0] == said[1] and said[0][0].startswith("def ")


def test_no_pieces_are_refused(folder, capsys):
    with pytest.raises(SystemExit):
        model_parallel.main(["--microbatches", "0"])
    assert "argument --microbatches: '0' is not a whole number of 1 or more" in capsys.readouterr().err


def test_the_diff_is_the_lesson():
    before, after = (Path(script.__file__).read_text().splitlines() for script in (language, model_parallel))
    added = [line[2:] for line in difflib.ndiff(before, after) if line.startswith("+ ")]
    code = "\n".join(added)
    for word in ("OnDevices(model, me.devices(2)[::-1], args.microbatches)", '"--microbatches"', "process, stages"):
        assert word in code
    assert len(added) <= 12 and len(after) <= 42
