"""The parts of the loop that need no other rank."""

import pytest
import torch
from distlab import loop
from distlab.loop.samples import own_samples
from distlab.loop.step import updates
from distlab.loop.tally import Clock, Tally, averages
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset


def options(*words):
    return loop.options().parse_args([str(word) for word in words])


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--epochs", "0"), "argument --epochs: '0' is not a whole number of 1 or more"),
        (("--epochs", "two"), "'two' is not a whole number of 1 or more"),
        (("--batch-size", "-4"), "argument --batch-size"),
        (("--batch-size", "1.5"), "argument --batch-size"),
        (("--lr", "0"), "argument --lr: '0' is not a number above 0"),
        (("--lr", "nan"), "'nan' is not a number above 0"),
        (("--lr", "inf"), "'inf' is not a number above 0"),
        (("--warmup-epochs", "-1"), "'-1' is not a number of 0 or more"),
        (("--limit", "0"), "argument --limit"),
        (("--accumulate", "0"), "argument --accumulate"),
        (("--checkpoint-every", "0"), "argument --checkpoint-every"),
        (("--max-steps", "0"), "argument --max-steps"),
        (("--seed", "-1"), "'-1' is not a whole number of 0 or more"),
        (("--model", "bert"), "invalid choice: 'bert' (choose from"),
        (("--on-damaged", "cry"), "invalid choice: 'cry'"),
    ],
)
def test_bad_values_are_refused_in_one_sentence(words, said, capsys, monkeypatch):
    monkeypatch.delenv("RANK", raising=False)
    with pytest.raises(SystemExit) as ended:
        options(*words)
    assert ended.value.code == 2
    error = capsys.readouterr().err
    assert said in error and "Traceback" not in error


def test_bad_values_are_refused_once_for_all_ranks(capsys, monkeypatch):
    monkeypatch.setenv("RANK", "1")
    monkeypatch.setenv("WORLD_SIZE", "2")
    with pytest.raises(SystemExit) as ended:
        options("--epochs", "0")
    assert ended.value.code == 2
    assert capsys.readouterr().err == ""


def test_options_that_switch():
    assert options().lr_scaling and not options("--no-lr-scaling").lr_scaling
    assert options().checkpoint is None
    assert options("--no-checkpoint").checkpoint is False
    assert str(options("--checkpoint", "a.pt").checkpoint) == "a.pt"
    assert options().resume is None
    assert options("--resume").resume is True
    assert str(options("--resume", "b.pt").resume) == "b.pt"


def test_rate_is_multiplied_by_the_batches_of_an_update():
    assert loop.scaled_lr(options("--lr", 0.1), ranks=4) == pytest.approx(0.4)
    assert loop.scaled_lr(options("--lr", 0.1, "--accumulate", 2), ranks=4) == pytest.approx(0.8)
    assert loop.scaled_lr(options("--lr", 0.1, "--accumulate", 2, "--no-lr-scaling"), ranks=4) == 0.1


def warm_up(peaks, base, epochs):
    groups = [{"params": [nn.Parameter(torch.zeros(1))], "lr": peak} for peak in peaks]
    return loop.WarmUp(torch.optim.SGD(groups), base, epochs)


def test_warm_up_rises_in_a_straight_line_and_stays():
    rate = warm_up([0.8], base=0.1, epochs=5)
    positions = (0, 1, 2.5, 4, 5, 5.1, 90)
    assert [rate.at(position)[0] for position in positions] == pytest.approx([0.1, 0.24, 0.45, 0.66, 0.8, 0.8, 0.8])


def test_warm_up_leaves_alone_what_need_not_rise():
    assert warm_up([0.1], base=0.1, epochs=5).at(0) == [0.1]
    assert warm_up([0.4], base=0.1, epochs=0).at(0) == [0.4]
    # A group with a smaller rate of its own, as for a pre-trained part.
    assert warm_up([0.4, 0.01], base=0.1, epochs=1).at(0.5) == pytest.approx([0.25, 0.01])


def test_warm_up_sets_the_optimizer():
    rate = warm_up([0.3], base=0.1, epochs=1)
    assert rate.set(0.5) == pytest.approx(0.2)
    assert rate.optimizer.param_groups[0]["lr"] == pytest.approx(0.2)


def test_shuffle_is_what_distributed_sampler_deals_out():
    data = TensorDataset(torch.arange(13))
    whole = loop.Shuffle(data, seed=5)
    parts = [DistributedSampler(data, 4, rank, seed=5) for rank in range(4)]
    orders = []
    for epoch in (0, 1, 7):
        for sampler in (whole, *parts):
            sampler.set_epoch(epoch)
        dealt = [list(part) for part in parts]
        together = [index for group in zip(*dealt, strict=True) for index in group]
        orders.append(list(whole))
        assert together == [*orders[-1], *orders[-1][:3]]
    assert len({tuple(order) for order in orders}) == 3


@pytest.mark.parametrize("world_size", [1, 2, 3, 5])
@pytest.mark.parametrize("consumed", [1, 6, 12, 22])
def test_the_rest_of_an_epoch(consumed, world_size):
    data = TensorDataset(torch.arange(23))
    order = loop.Shuffle(data, seed=2)
    order.set_epoch(3)
    rest = list(order)[consumed:]
    seen, counted = [], 0
    for rank in range(world_size):
        loader = DataLoader(data, 2, sampler=DistributedSampler(data, world_size, rank, seed=2))
        left = loop.rest_of_epoch(loader, 3, consumed)
        own = [value for (values,) in left for value in values.tolist()]
        counted += own_samples(left)
        assert own[: own_samples(left)] == rest[rank::world_size]
        seen.append(own)
    assert len({len(own) for own in seen}) == 1, "ranks would end at different steps"
    assert set(sum(seen, [])) == set(rest)
    assert counted == len(rest)


def test_own_samples_leaves_out_padding():
    data = TensorDataset(torch.arange(23))
    loaders = [DataLoader(data, 2, sampler=DistributedSampler(data, 5, rank)) for rank in range(5)]
    assert [own_samples(loader) for loader in loaders] == [5, 5, 5, 4, 4]
    assert own_samples(DataLoader(data, 2, shuffle=True)) == 23


def test_updates_of_several_batches():
    data = TensorDataset(torch.arange(11), torch.arange(11))
    sizes = [[len(labels) for _, labels in update] for update in updates(DataLoader(data, 2), 4)]
    assert sizes == [[2, 2, 2, 2], [2, 1]]
    assert [len(update) for update in updates(DataLoader(data, 2), 1)] == [1] * 6


def test_tally_weighs_by_sample_and_leaves_out_padding():
    random = torch.Generator().manual_seed(1)
    logits, labels = torch.randn(7, 3, generator=random), torch.tensor([0, 1, 2, 0, 1, 2, 0])
    tally = Tally(torch.device("cpu"))
    tally.add(F.cross_entropy(logits[:5], labels[:5]), logits[:5], labels[:5], real=5)
    tally.add(F.cross_entropy(logits[5:], labels[5:]), logits[5:], labels[5:], real=1)
    tally.add(torch.tensor(9.0), None, labels[:5], real=5)
    loss, accuracy = averages(tally.totals(loop.Collectives()))
    assert loss == pytest.approx(F.cross_entropy(logits[:6], labels[:6]).item(), abs=1e-6)
    assert accuracy == pytest.approx((logits[:6].argmax(1) == labels[:6]).double().mean().item())
    more = tally.totals(loop.Collectives(), [1.0, 2.0, 4.0])
    assert more[1:] == [6 * accuracy + 2, 10]


def test_tally_counts_a_sample_once_however_many_labels_it_has():
    random = torch.Generator().manual_seed(2)
    logits, labels = torch.randn(6, 3, 5, generator=random), torch.randint(3, (6, 5), generator=random)
    tally = Tally(torch.device("cpu"))
    tally.add(F.cross_entropy(logits[:4], labels[:4]), logits[:4], labels[:4], real=4)
    tally.add(F.cross_entropy(logits[4:], labels[4:]), logits[4:], labels[4:], real=1)
    loss, accuracy = averages(tally.totals(loop.Collectives()))
    assert loss == pytest.approx(F.cross_entropy(logits[:5], labels[:5]).item(), abs=1e-6)
    right = [(logits[n, :, t].argmax() == labels[n, t]).item() for n in range(5) for t in range(5)]
    assert 0 < sum(right) < 25
    assert accuracy == pytest.approx(sum(right) / 25)
    assert tally.sums[2] == 5


def test_options_for_text():
    args = loop.text_options().parse_args([])
    assert not args.lr_scaling and loop.scaled_lr(args, ranks=4) == args.lr
    assert (args.samples, options().samples) == ("sequences", "images")
    scaled = loop.text_options().parse_args(["--lr-scaling", "--lr", "0.5"])
    assert loop.scaled_lr(scaled, ranks=4) == 2.0


def test_clock_leaves_out_the_first_update(monkeypatch):
    times = iter([10.0, 15.0, 17.0, 30.0, 31.0, 34.0])
    monkeypatch.setattr("time.perf_counter", lambda: next(times))
    clock = Clock(torch.device("cpu"))
    for images in (64, 64, 36):
        clock.updated(images)
    assert clock.stop() == (7.0, 50.0)
    only_one = Clock(torch.device("cpu"))
    only_one.updated(64)
    assert only_one.stop() == (4.0, 16.0)


def test_train_step_refuses_a_loss_that_is_no_number_before_going_backward():
    net = nn.Linear(2, 3)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    images = torch.tensor([[1.0, float("inf")]])
    with pytest.raises(loop.NotFinite, match="nan"):
        loop.train_step(net, optimizer, images, torch.tensor([0]), 1.0, True)
    assert net.weight.grad is None
