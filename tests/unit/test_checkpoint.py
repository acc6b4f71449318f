"""Checkpoints: whole or not at all, plain, unwrapped, and clear about what is wrong."""

import argparse
import os
import random
import resource
import signal
import time

import numpy as np
import pytest
import start_ranks
import torch
from distlab import checkpoint, process
from distlab.waiting import wait_until
from torch import nn

MAIN = process.Rank(0, 2, 0, 2, 0, "node1", "torchrun", torch.device("cpu"), None, "")
OTHER = process.Rank(1, 2, 1, 2, 0, "node1", "torchrun", torch.device("cpu"), None, "")


def save_until_killed(path, step, most_bytes=None):
    """Save step after step; with `most_bytes` the kernel kills this process when a file grows beyond them."""
    if most_bytes is not None:
        signal.signal(signal.SIGXFSZ, signal.SIG_DFL)
        resource.setrlimit(resource.RLIMIT_FSIZE, (most_bytes, most_bytes))
    net = nn.Linear(700, 700)
    while True:
        step += 1
        nn.init.constant_(net.weight, step)
        checkpoint.save(path, MAIN, net, step=step)


def save_without_room(path):
    """What is raised when the second checkpoint is larger than a file may grow."""
    checkpoint.save(path, MAIN, nn.Linear(2, 2), step=1)
    resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, 20_000))
    checkpoint.save(path, MAIN, nn.Linear(200, 200), step=2)


def network(seed=0):
    torch.manual_seed(seed)
    return nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 2))


def trained():
    net = network()
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1, momentum=0.9)
    net(torch.ones(2, 3)).sum().backward()
    optimizer.step()
    return net, optimizer


def test_model_optimizer_and_numbers_come_back(tmp_path):
    net, optimizer = trained()
    path = tmp_path / "new" / "folder" / "checkpoint.pt"
    checkpoint.save(path, MAIN, net, optimizer, epoch=3, sums=[1.5, 2.0], note=None)
    state = checkpoint.read(path)
    assert (state["epoch"], state["sums"], state["note"]) == (3, [1.5, 2.0], None)
    other = network(seed=9)
    again = torch.optim.SGD(other.parameters(), lr=0.7, momentum=0.9)
    checkpoint.restore(state, other, again)
    for one, two in zip(net.parameters(), other.parameters(), strict=True):
        assert torch.equal(one, two)
        assert torch.equal(optimizer.state[one]["momentum_buffer"], again.state[two]["momentum_buffer"])


def test_only_rank_0_writes(tmp_path):
    checkpoint.save(tmp_path / "a.pt", OTHER, network())
    assert list(tmp_path.iterdir()) == []


def test_no_wrapper_on_disk_and_any_wrapper_in_memory(tmp_path):
    net, _ = trained()
    checkpoint.save(tmp_path / "a.pt", MAIN, nn.DataParallel(net))
    state = checkpoint.read(tmp_path / "a.pt")
    assert list(state["model"]) == ["0.weight", "0.bias", "2.weight", "2.bias"]
    wrapped = nn.DataParallel(network(seed=9))
    checkpoint.restore(state, wrapped)
    assert torch.equal(wrapped.module[0].weight, net[0].weight)


def test_a_file_saved_with_the_prefix_loads(tmp_path):
    net, _ = trained()
    torch.save({"format": 1, "model": nn.DataParallel(net).state_dict()}, tmp_path / "a.pt")
    other = network(seed=9)
    checkpoint.restore(checkpoint.read(tmp_path / "a.pt"), other)
    assert torch.equal(other[0].weight, net[0].weight)


def test_the_first_key_that_does_not_fit_is_named():
    own = network().state_dict()
    lacking = {key: value for key, value in own.items() if key != "0.bias"}
    with pytest.raises(checkpoint.CheckpointError, match=r"lacks '0.bias' \(its first key: '0.weight'\)"):
        checkpoint.load_model(network(), lacking)
    with pytest.raises(checkpoint.CheckpointError, match=r"'0.weight' has shape \(5, 3\), this model wants \(4, 3\)"):
        checkpoint.load_model(network(), {**own, "0.weight": torch.zeros(5, 3)})
    with pytest.raises(checkpoint.CheckpointError, match="it has '4.weight', which this model lacks"):
        checkpoint.load_model(network(), {**own, "4.weight": torch.zeros(5, 3)})
    with pytest.raises(checkpoint.CheckpointError, match="its first key: 'nothing'"):
        checkpoint.load_model(network(), {})


def test_an_optimizer_that_does_not_fit():
    net, optimizer = trained()
    state = {"model": net.state_dict(), "optimizer": optimizer.state_dict()}
    half = torch.optim.SGD(net[0].parameters(), lr=0.1)
    with pytest.raises(checkpoint.CheckpointError, match="optimizer does not fit this one"):
        checkpoint.restore(state, net, half)
    with pytest.raises(checkpoint.CheckpointError, match="holds no optimizer"):
        checkpoint.restore({"model": net.state_dict()}, net, optimizer)


@pytest.mark.parametrize(
    ("value", "where"),
    [
        ({"lr": np.float64(0.1)}, r"state\['args'\]\['lr'\] is a float64"),
        (argparse.Namespace(lr=0.1), r"state\['args'\] is a Namespace"),
        ([1, np.int64(2)], r"state\['args'\]\[1\] is a int64"),
    ],
)
def test_only_plain_types_are_saved(tmp_path, value, where):
    with pytest.raises(TypeError, match=where):
        checkpoint.save(tmp_path / "a.pt", MAIN, network(), args=value)
    assert list(tmp_path.iterdir()) == []


def damaged(tmp_path, change):
    path = tmp_path / "a.pt"
    checkpoint.save(path, MAIN, network())
    path.write_bytes(change(path.read_bytes()))
    return path


@pytest.mark.parametrize(
    "change",
    [lambda whole: b"", lambda whole: whole[: len(whole) // 2], lambda whole: b"<html>not found</html>"],
    ids=["empty", "half", "html"],
)
def test_a_damaged_file_is_named(tmp_path, change):
    path = damaged(tmp_path, change)
    with pytest.raises(checkpoint.CheckpointError, match=r"checkpoint .*a\.pt \([\d,]+ bytes\) is damaged or is none"):
        checkpoint.read(path)


def test_a_file_that_would_run_code_is_refused(tmp_path):
    ran = tmp_path / "ran"

    class Trap:
        def __reduce__(self):
            return os.mkdir, (str(ran),)

    torch.save({"format": 1, "model": {}, "trap": Trap()}, tmp_path / "a.pt")
    with pytest.raises(checkpoint.CheckpointError, match="is damaged or is none"):
        checkpoint.read(tmp_path / "a.pt")
    assert not ran.exists()


def test_other_files(tmp_path):
    with pytest.raises(checkpoint.CheckpointError, match="no checkpoint .*none.pt: check the path"):
        checkpoint.read(tmp_path / "none.pt")
    torch.save(torch.zeros(3), tmp_path / "tensor.pt")
    with pytest.raises(checkpoint.CheckpointError, match="it holds no 'model'"):
        checkpoint.read(tmp_path / "tensor.pt")
    torch.save({"model": {}, "format": 99}, tmp_path / "later.pt")
    with pytest.raises(checkpoint.CheckpointError, match="has format 99, this version reads 1"):
        checkpoint.read(tmp_path / "later.pt")


def test_a_place_that_cannot_be_written(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(OSError, match="rank 0 on node1 cannot write the checkpoint .*: File exists. Free space"):
        checkpoint.save(tmp_path / "file" / "a.pt", MAIN, network())
    (tmp_path / "a.pt").mkdir()
    with pytest.raises(OSError, match="cannot write the checkpoint .*a.pt: Is a directory. Free space, choose"):
        checkpoint.save(tmp_path / "a.pt", MAIN, network())
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a.pt", "file"]


def test_no_room_leaves_the_previous_one(tmp_path):
    path = tmp_path / "run" / "a.pt"
    ((how, what, _),) = start_ranks.run(1, save_without_room, path, folder=tmp_path, may_raise=True)
    assert how == "raised" and what.startswith("CheckpointNotWritten: rank 0 on node1 cannot write the checkpoint ")
    assert f"rank 0 on node1 cannot write the checkpoint {path}: File too large, the previous one is intact" in what
    assert checkpoint.read(path)["step"] == 1
    assert list(path.parent.iterdir()) == [path]


def whole_step(path):
    """The step of a checkpoint that `save_until_killed` wrote, once its content has been compared with it."""
    state = checkpoint.read(path)
    assert torch.equal(state["model"]["weight"], torch.full((700, 700), float(state["step"])))
    return state["step"]


@pytest.fixture
def saver():
    started = []

    def start(*arguments):
        child = start_ranks.context.Process(target=save_until_killed, args=arguments)
        child.start()
        started.append(child)
        return child

    yield start
    for child in started:
        child.kill()
        child.join()


def test_killed_at_any_moment_leaves_a_whole_file(tmp_path, saver):
    path, step, moments = tmp_path / "a.pt", 0, random.Random(0)
    for _ in range(8):
        child = saver(path, step)
        wait_until(lambda step=step: path.exists() and checkpoint.read(path)["step"] > step, 60, every=0.01)
        time.sleep(moments.uniform(0, 0.2))
        child.kill()
        child.join()
        assert whole_step(path) > step, "nothing was saved between two kills"
        step = whole_step(path)


@pytest.mark.parametrize("most_bytes", [0, 1, 4096, 1_000_000])
def test_killed_while_it_writes_leaves_the_previous_file(tmp_path, saver, most_bytes):
    path = tmp_path / "a.pt"
    net = nn.Linear(700, 700)
    nn.init.constant_(net.weight, 1)
    checkpoint.save(path, MAIN, net, step=1)
    child = saver(path, 1, most_bytes)
    child.join(60)
    assert child.exitcode == -signal.SIGXFSZ
    assert whole_step(path) == 1
    assert len(list(tmp_path.iterdir())) == 2, "it was not killed while it wrote"
    checkpoint.save(path, MAIN, net, step=2)
    assert list(tmp_path.iterdir()) == [path], "what the killed process left is still there"


def test_latest(tmp_path):
    with pytest.raises(checkpoint.CheckpointError, match="nothing to resume"):
        checkpoint.latest(tmp_path)
    for name in ("b", "c", "a"):
        checkpoint.save(tmp_path / name / "checkpoint.pt", MAIN, network())
        time.sleep(0.01)
    assert checkpoint.latest(tmp_path) == tmp_path / "a" / "checkpoint.pt"
