"""Training on ranks against the same training in one process, number by number."""

import math

import numpy as np
import pytest
import start_ranks
import torch
import training_jobs as jobs
from distlab import checkpoint, loop, report
from torch.nn import functional as F


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """The run folder of everything in this file, also of what runs in pytest's own process."""
    folder = tmp_path_factory.mktemp("run")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("DISTLAB_RUN_DIR", str(folder))
        patch.setenv("DISTLAB_RUNS", str(folder / "runs"))
        patch.setenv("TQDM_DISABLE", "1")
        yield folder


@pytest.fixture(scope="module")
def one(folder):
    """What the ranks are compared with."""
    return {
        "whole": jobs.train(
            jobs.ALONE, "--batch-size", 16, "--epochs", 2, "--warmup-epochs", 1, "--no-checkpoint", peak=0.2
        ),
        "accumulated": jobs.train(jobs.ALONE, "--batch-size", 16, "--no-checkpoint", size=44),
        "stopped": jobs.train(jobs.ALONE, "--batch-size", 4, "--max-steps", 4, "--checkpoint", folder / "of one.pt"),
        "stopped, 50": jobs.train(
            jobs.ALONE, "--batch-size", 4, "--max-steps", 4, "--checkpoint", folder / "of one, 50.pt", size=50
        ),
    }


@pytest.fixture(scope="module")
def two(folder, one):
    return start_ranks.run(2, jobs.two_ranks, folder, folder=folder / "two")


@pytest.fixture(scope="module")
def three(folder, two):
    return start_ranks.run(3, jobs.three_ranks, folder, folder=folder / "three")


def asked(ranks, case):
    return sorted(index for rank in ranks for index in rank[case]["asked"])


def same(one, other, *names):
    for name in names:
        assert one[name] == pytest.approx(other[name], abs=1e-6), name


def loss_and_accuracy(size, seed=0):
    """Of the untrained network on all samples at once."""
    samples = jobs.Samples(size, seed)
    with torch.no_grad():
        logits = jobs.network()(samples.images)
    return F.cross_entropy(logits, samples.labels).item(), (logits.argmax(1) == samples.labels).double().mean().item()


def test_two_ranks_learn_what_one_process_learns_from_the_whole_batch(one, two):
    for rank in two:
        np.testing.assert_allclose(rank["whole"]["weights"], one["whole"]["weights"], atol=1e-6)
        assert len(rank["whole"]["records"]) == 2
        for mine, twin in zip(rank["whole"]["records"], one["whole"]["records"], strict=True):
            same(mine, twin, "loss", "accuracy", "val_loss", "val_accuracy", "steps", "lr", "epoch")
    assert one["whole"]["records"][1]["loss"] < 0.8 * one["whole"]["records"][0]["loss"]


def test_rates_rise_from_lr_to_the_scaled_rate(two):
    # 3 updates per epoch, warm-up over 1 epoch, from 0.1 to 2 * 0.1.
    assert two[0]["whole"]["rates"] == pytest.approx([0.1, 0.1 + 0.1 / 3, 0.1 + 0.2 / 3, 0.2, 0.2, 0.2])


def test_each_epoch_is_dealt_out_once_and_in_an_order_of_its_own(two):
    halves = [[rank["whole"]["asked"][:24] for rank in two], [rank["whole"]["asked"][24:] for rank in two]]
    for epoch in halves:
        assert sorted(epoch[0] + epoch[1]) == list(range(48))
    assert halves[0][0] != halves[1][0]


def test_padding_is_not_counted(two, three):
    for ranks, size in ((two, 21), (three, 22)):
        loss, accuracy = loss_and_accuracy(size)
        assert len(asked(ranks, "padded")) > size, "this case is about padding"
        for rank in ranks:
            assert rank["padded"]["records"][0]["loss"] == pytest.approx(loss, abs=1e-6)
            assert rank["padded"]["records"][0]["accuracy"] == pytest.approx(accuracy)
        assert sum(rank["padded"]["records"][0]["images"] for rank in ranks) == size


def test_validation_counts_every_sample_once_on_any_number_of_ranks(folder, two, three):
    loss, accuracy = loss_and_accuracy(21, seed=1)
    for totals in (jobs.totals_of_validation(jobs.ALONE), *(rank["validation"] for rank in (*two, *three))):
        assert totals == pytest.approx([21 * loss, 21 * accuracy, 21], abs=1e-5)


def test_validation_uses_the_running_statistics_of_rank_0(two):
    expected = jobs.accuracy_of_normalised(jobs.ALONE)
    for rank in two:
        assert rank["normalised"] == pytest.approx(expected, abs=1e-6)


def test_accumulated_batches_equal_one_large_batch(one, two):
    # 44 samples: 2 ranks x 4 x 2 = 16 per update, and a smaller one of 12 at the end.
    for rank in two:
        np.testing.assert_allclose(rank["accumulated"]["weights"], one["accumulated"]["weights"], atol=1e-6)
        same(rank["accumulated"]["records"][0], one["accumulated"]["records"][0], "loss", "accuracy", "steps")


def test_gradients_travel_once_per_update(two):
    for rank in two:
        assert rank["accumulated"]["records"][0]["steps"] == 3
        assert rank["accumulated"]["sent"] == 3


def test_every_rank_reports(folder, two):
    records = report.read(folder / "two")
    for rank in (0, 1):
        own = [record for record in records if record["rank"] == rank]
        epoch = next(record for record in own if record["event"] == "epoch" and record["epoch"] == 2)
        assert {"loss", "accuracy", "val_loss", "val_accuracy", "seconds", "images_per_second"} <= set(epoch)
        assert any(record["event"] == "setup" and record["samples_per_update"] == 16 for record in own)
        end = next(record for record in own if record["event"] == "end" and record["epochs"] == 2)
        assert end["images"] == 48
    rates = [rank["whole"]["records"][1] for rank in two]
    assert rates[0]["images_per_second_all"] == pytest.approx(sum(rate["images_per_second"] for rate in rates))


def test_only_rank_0_speaks_and_saves(folder, two):
    assert "epoch 2: loss" in two[0]["whole"]["said"]
    assert two[1]["whole"]["said"] == ""
    assert (folder / "only-on-rank-0.pt").exists()
    assert not (folder / "only-on-rank-1.pt").exists()


def test_saved_weights_are_those_of_the_network_unwrapped(folder, two):
    state = checkpoint.read(folder / "whole.pt")
    assert list(state["model"]) == list(jobs.network().state_dict())
    np.testing.assert_array_equal(jobs.read_weights(folder / "whole.pt"), two[0]["whole"]["weights"])
    assert (state["epoch"], state["consumed"], state["steps"], state["world_size"]) == (2, 0, 6, 2)


def test_resumed_equals_uninterrupted(two):
    # Only rank 0 has the file that both resume from.
    for rank in two:
        np.testing.assert_array_equal(rank["second part"]["weights"], rank["uninterrupted"]["weights"])
        for mine, whole in zip(rank["second part"]["records"], rank["uninterrupted"]["records"], strict=True):
            same(mine, whole, "loss", "accuracy", "val_loss", "val_accuracy", "steps", "lr")
    assert asked(two, "first part") != asked(two, "second part")


def test_resumed_alone_equals_uninterrupted(folder):
    words = ("--batch-size", 10, "--epochs", 3, "--accumulate", 2)
    whole = jobs.train(jobs.ALONE, *words, "--no-checkpoint", dropout=0.5)
    for stop in (1, 3, 4):
        jobs.train(jobs.ALONE, *words, "--max-steps", stop, "--checkpoint", folder / "alone.pt", dropout=0.5)
        rest = jobs.train(jobs.ALONE, *words, "--resume", folder / "alone.pt", dropout=0.5)
        np.testing.assert_array_equal(rest["weights"], whole["weights"])
        same(rest["records"][-1], whole["records"][-1], "loss", "accuracy", "val_loss", "steps")


def test_another_number_of_ranks_goes_on_with_the_rest_of_the_epoch(folder, one, two, three):
    # Two ranks used 24 of 48 samples, then three use the rest and a whole second epoch.
    rest = [rank["on 3 after 2"]["asked"][:8] for rank in three]
    assert sorted(asked(two, "first part") + sum(rest, [])) == list(range(48))
    assert sorted(sum((rank["on 3 after 2"]["asked"][8:] for rank in three), [])) == list(range(48))
    # One process used 16, two ranks the rest.
    assert sorted(one["stopped"]["asked"] + asked(two, "on 2 after 1")) == list(range(48))
    alone = jobs.train(jobs.ALONE, "--batch-size", 5, "--resume", folder / "only-on-rank-0.pt", "--epochs", 1)
    assert sorted(asked(two, "first part") + alone["asked"]) == list(range(48))
    assert "24 samples, written by 2 ranks" in alone["said"]


def test_a_rest_that_cannot_be_divided_repeats_at_most_one_sample_less_than_ranks(one, three):
    # 50 - 16 = 34 samples on three ranks: 12 each.
    again = asked(three, "uneven")
    assert len(again) == 36
    assert set(one["stopped, 50"]["asked"]) | set(again) == set(range(50))
    assert not set(one["stopped, 50"]["asked"]) & set(again)
    assert sum(rank["uneven"]["records"][0]["images"] for rank in three) == 34


def test_checkpoints_within_an_epoch(folder, two):
    state = checkpoint.read(folder / "every.pt")
    # --max-steps 5 saves at its end; the one at step 4 has been replaced.
    assert (state["epoch"], state["consumed"], state["steps"]) == (0, 40, 5)


def test_a_checkpoint_that_cannot_be_used_is_the_same_error_on_every_rank(folder, two):
    for rank in two:
        assert rank["damaged"].startswith("CheckpointError: the checkpoint ")
        assert "damaged.pt (19 bytes) is damaged or is none" in rank["damaged"]
        assert "no checkpoint" in rank["missing"] and "nothing.pt" in rank["missing"]
        assert "within an epoch of 48 samples, this run has 40" in rank["other size"]


def test_ranks_share_gather_and_fail_together(two):
    for rank in two:
        assert rank["shared"] == "from 0"
        assert rank["gathered"] == ["from 0", "from 1"]
        assert rank["failed on main"].startswith("ValueError: invalid literal")


def test_a_loss_that_is_no_number_stops_before_it_reaches_another_rank(folder):
    answers = start_ranks.run(2, jobs.one_sees_nan, folder, folder=folder / "nan", may_raise=True)
    assert answers[1][0] == "raised"
    assert answers[1][1].startswith("LossError: rank 1 on ")
    assert "the loss is nan in epoch 1, step 2: lower --lr" in answers[1][1]
    assert answers[0][0] == "raised" and "LossError" not in answers[0][1]
    state = checkpoint.read(folder / "nan.pt")
    assert state["steps"] == 1
    assert all(torch.isfinite(value).all() for value in state["model"].values())
    assert math.isfinite(state["sums"][0])


def test_a_run_that_is_done_says_so(folder, two):
    done = jobs.train(jobs.ALONE, "--batch-size", 8, "--epochs", 2, "--resume", folder / "whole.pt")
    assert done["records"] == []
    assert "nothing left to train: 2 epochs are done and --epochs is 2" in done["said"]
    np.testing.assert_array_equal(done["weights"], two[0]["whole"]["weights"])
    more = jobs.train(jobs.ALONE, "--batch-size", 8, "--epochs", 3, "--resume", folder / "whole.pt")
    assert [record["epoch"] for record in more["records"]] == [3]


def test_resume_without_a_file_takes_the_newest_of_all_runs(folder, one, monkeypatch):
    with pytest.raises(checkpoint.CheckpointError, match="nothing to resume"):
        jobs.train(jobs.ALONE, "--resume")
    for name, stop in (("a-run", 2), ("b-run", 1)):
        monkeypatch.setenv("DISTLAB_RUN_DIR", str(folder / "runs" / name))
        (folder / "runs" / name).mkdir(parents=True)
        jobs.train(jobs.ALONE, "--batch-size", 4, "--max-steps", stop)
    resumed = jobs.train(jobs.ALONE, "--batch-size", 4, "--resume")
    assert "b-run/checkpoint.pt: 0 epochs and 4 samples" in resumed["said"]


def test_the_checkpoint_s_seed_goes_on(folder, one):
    other = jobs.train(jobs.ALONE, "--batch-size", 4, "--resume", folder / "of one.pt", "--seed", 9)
    assert "checkpoint's seed 0, not 9" in other["said"]
    assert sorted(one["stopped"]["asked"] + other["asked"]) == list(range(48))


def test_a_step_of_its_own(folder, monkeypatch):
    """A script may train differently, and a rank may have nothing to say about loss and accuracy."""
    seen = []

    def silent(model, optimizer, images, labels, share, update):
        seen.append((len(labels), round(share, 3), update))
        return torch.tensor(0.0), None

    samples = jobs.Samples(10)
    args = loop.options().parse_args(["--batch-size", "4", "--accumulate", "2", "--no-checkpoint"])
    batches = torch.utils.data.DataLoader(samples, 4, sampler=loop.Shuffle(samples))
    net = jobs.network()
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    with pytest.raises(loop.LossError, match="the loss of epoch 1 over all ranks is nan"):
        loop.fit(jobs.ALONE, net, optimizer, batches, batches, args, step=silent)
    assert seen == [(4, 0.5, False), (4, 0.5, True), (2, 1.0, True)]
