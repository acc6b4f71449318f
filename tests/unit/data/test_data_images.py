"""load: digits and CIFAR-10, limits, memory that ranks share."""

import hashlib
import pickle

import numpy as np
import pytest
import torch
from distlab import data
from distlab.data import arrays, cifar10, images


def test_digits_are_scikit_learns():
    from sklearn.datasets import load_digits

    true = load_digits()
    found = data.load("digits")
    assert found.classes == [str(digit) for digit in range(10)] and found.note == ""
    assert len(found.train) + len(found.val) == 1797
    # Every fifth is for validation: 4, 9, ...
    assert found.val.labels[:3].tolist() == true.target[[4, 9, 14]].tolist()
    assert found.train.labels[:5].tolist() == true.target[[0, 1, 2, 3, 5]].tolist()
    assert np.abs(found.train.images[4, 0].numpy() * (16 / 255) - true.images[5]).max() < 0.04
    assert found.train.images.max() == 255


def test_training_images_have_mean_0_and_deviation_1():
    train = data.load("digits").train
    x, _ = next(iter(data.loader(train, len(train))))
    assert x.mean().item() == pytest.approx(0, abs=1e-5)
    assert x.std(correction=0).item() == pytest.approx(1, abs=1e-5)


def test_moments_by_hand():
    pixels = np.array([[[[0, 255]], [[51, 51]]], [[[0, 255]], [[51, 51]]]], np.uint8)
    mean, std = arrays.channel_moments(pixels)
    assert mean == pytest.approx([0.5, 0.2])
    # A channel of one colour is not divided by 0.
    assert std[0] == pytest.approx(0.5) and std[1] == 1.0


def test_writing_to_an_image_does_not_reach_the_prepared_files():
    first = data.load("digits").train
    kept = first.images[0].clone()
    first.images[0] = 77
    assert torch.equal(data.load("digits").train.images[0], kept)


def test_a_limit_takes_evenly_from_the_classes_and_keeps_their_order():
    whole = data.load("digits")
    some = data.load("digits", limit=57)
    assert len(some.train) == 57 and len(some.val) == 11
    counts = some.train.labels.bincount(minlength=10)
    assert counts.tolist() == [6] * 7 + [5] * 3
    # The first six or five of each class, where the whole set has them.
    firsts = [
        place for label in range(10) for place in (whole.train.labels == label).nonzero()[: counts[label], 0].tolist()
    ]
    assert torch.equal(some.train.images, whole.train.images[sorted(firsts)])
    assert some.train.labels.tolist() == whole.train.labels[sorted(firsts)].tolist()
    assert torch.equal(data.load("digits", limit=57).train.images, some.train.images)
    assert some.train.mean == whole.train.mean


def test_a_limit_goes_on_when_a_class_runs_out():
    labels = torch.tensor([0, 0, 0, 0, 0, 1, 2, 2])
    pixels = torch.arange(8, dtype=torch.uint8).view(8, 1, 1, 1)
    some = images._evenly(images.InMemory(pixels, labels, [0.0], [1.0]), 6)
    assert some.images.flatten().tolist() == [0, 1, 2, 5, 6, 7]


@pytest.mark.parametrize(("limit", "train", "val"), [(1, 1, 1), (4, 4, 1), (10, 10, 2), (10**6, 1438, 359)])
def test_sizes_under_a_limit(limit, train, val):
    found = data.load("digits", limit=limit)
    assert (len(found.train), len(found.val)) == (train, val)


def test_a_limit_below_1_is_refused():
    with pytest.raises(ValueError, match="limit=0 leaves nothing to train on"):
        data.load("digits", limit=0)


def test_a_root_of_ones_own(tmp_path, root):
    data.load("digits", root=tmp_path / "mine")
    assert (tmp_path / "mine" / "digits").is_dir() and not root.exists()


@pytest.fixture
def batches_of_cifar(root, monkeypatch):
    """A CIFAR-10 of five batches of 4 and a test batch of 3, in torchvision's layout."""
    datasets = pytest.importorskip("torchvision.datasets")
    folder = root / cifar10.ARCHIVE_FOLDER
    folder.mkdir(parents=True)
    random = np.random.default_rng(2)

    def write(name, content):
        blob = pickle.dumps(content)
        (folder / name).write_bytes(blob)
        return hashlib.md5(blob).hexdigest()

    def batch(name, count):
        pixels = random.integers(0, 256, (count, 3 * 32 * 32), dtype=np.uint8)
        return write(name, {"data": pixels, "labels": random.integers(0, 10, count).tolist()})

    lists = {
        "train_list": [[f"data_batch_{n}", batch(f"data_batch_{n}", 4)] for n in range(1, 6)],
        "test_list": [["test_batch", batch("test_batch", 3)]],
        "meta": {
            "filename": "batches.meta",
            "key": "label_names",
            "md5": write("batches.meta", {"label_names": [f"class{n}" for n in range(10)]}),
        },
    }
    for name, value in lists.items():
        monkeypatch.setattr(datasets.CIFAR10, name, value)
    return folder


def test_cifar10_from_torchvisions_files(batches_of_cifar):
    found = data.load("cifar10")
    assert (found.name, len(found.train), len(found.val)) == ("cifar10", 20, 3)
    assert (found.channels, found.height, found.width) == (3, 32, 32) and found.classes[3] == "class3"
    second = pickle.loads((batches_of_cifar / "data_batch_2").read_bytes())
    assert torch.equal(found.train.images[5], torch.from_numpy(second["data"][1]).view(3, 32, 32))
    assert found.train.labels[4:8].tolist() == second["labels"]


def test_a_damaged_cifar10_is_named(batches_of_cifar, root):
    with open(batches_of_cifar / "data_batch_3", "ab") as file:
        file.write(b"x")
    with pytest.raises(RuntimeError, match=r"the CIFAR-10 in .*cifar-10-batches-py is damaged .*copy a whole"):
        data.load("cifar10")
    assert batches_of_cifar.is_dir() and not (root / "cifar10").exists()


def test_cifar10_offline(root):
    with pytest.raises(RuntimeError, match="CIFAR-10 is not in .*DISTLAB_OFFLINE forbids the network"):
        data.load("cifar10")


def test_cifar10_download_that_fails_leaves_nothing(root, tmp_path, serve, monkeypatch):
    datasets = pytest.importorskip("torchvision.datasets")
    (tmp_path / "site").mkdir()
    (tmp_path / "site" / "cifar.tar.gz").write_bytes(b"not an archive")
    server = serve(tmp_path / "site")
    monkeypatch.setenv("DISTLAB_OFFLINE", "0")
    monkeypatch.setattr(datasets.CIFAR10, "url", f"{server.address}cifar.tar.gz")
    with pytest.raises(RuntimeError, match="CIFAR-10 cannot be fetched .*corrupted"):
        data.load("cifar10")
    assert server.asked and not (root / "cifar10").exists()
    assert not [path for path in root.iterdir() if path.suffix == ".part"]


def test_names_of_the_room():
    for name in data.__all__:
        assert getattr(data, name) is not None
    with pytest.raises(AttributeError, match="no attribute 'lode'"):
        data.lode  # noqa: B018
