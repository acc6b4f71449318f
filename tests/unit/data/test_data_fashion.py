"""Fashion-MNIST from each of its sources, its checksums, and what happens without any."""

import gzip
import hashlib
import json
import os
import shutil
import subprocess
import sys
import time

import numpy as np
import psutil
import pytest
from data_helpers import PACKAGE_FOLDER, REAL_DATA, idx, leftovers
from distlab import data
from distlab.data import arrays, fashion
from distlab.data.sets import prepare
from distlab.data.store import data_root, find

NEEDS_APT = pytest.mark.skipif(
    not (shutil.which("apt-get") and shutil.which("dpkg-deb")), reason="no apt-get and dpkg-deb on this system"
)


def values(packed, head):
    """What follows the head of a packed idx file."""
    return np.frombuffer(gzip.decompress(packed.read_bytes())[head:], np.uint8)


def expect_little(found, little):
    """The prepared arrays are the little set's, byte for byte."""
    for split, key, count in (("train", "train", 40), ("val", "t10k", 20)):
        images = values(little / f"{key}-images-idx3-ubyte.gz", 16).reshape(count, 1, 28, 28)
        labels = values(little / f"{key}-labels-idx1-ubyte.gz", 8)
        got_images, got_labels = arrays.read(found.folder, split)
        assert got_images.dtype == np.uint8 and np.array_equal(got_images, images)
        assert got_labels.dtype == np.int64 and np.array_equal(got_labels, labels)
    assert found.facts["shape"] == [1, 28, 28] and found.note == ""


def test_from_the_installed_package(root, little, monkeypatch):
    monkeypatch.setattr(fashion, "INSTALLED", little)
    found = prepare()
    expect_little(found, little)
    assert "Debian package" in found.facts["source"]


def test_from_files_copied_into_the_data_folder(root, little):
    raw = root / "FashionMNIST" / "raw"
    raw.mkdir(parents=True)
    for packed in little.iterdir():
        shutil.copy(packed, raw)
    subprocess.run(["gzip", "-d", *map(str, raw.iterdir())], check=True)
    expect_little(prepare(), little)


@pytest.mark.parametrize("harm", ["one byte", "truncated", "not gzip", "missing"])
def test_a_damaged_file_is_refused_and_not_left_behind(root, little, monkeypatch, harm):
    monkeypatch.setattr(fashion, "INSTALLED", little)
    victim = little / "t10k-images-idx3-ubyte.gz"
    if harm == "one byte":
        content = bytearray(gzip.decompress(victim.read_bytes()))
        content[-1] ^= 1
        victim.write_bytes(gzip.compress(content))
    elif harm == "truncated":
        os.truncate(victim, 1000)
    elif harm == "not gzip":
        victim.write_bytes(b"<html>not found</html>")
    else:
        victim.unlink()
    found = prepare()
    assert found.facts["name"] == "digits"
    assert "t10k-images-idx3-ubyte" in found.note
    reason = {"one byte": "SHA-256 is wrong", "missing": "is missing"}.get(harm, "is damaged (")
    assert reason in found.note
    assert not (root / "fashion-mnist").exists() and leftovers(root) == []


def test_the_next_source_is_asked_when_one_is_damaged(root, little, tmp_path, monkeypatch):
    raw = root / "FashionMNIST" / "raw"
    shutil.copytree(little, raw)
    (raw / "train-labels-idx1-ubyte.gz").write_bytes(b"")
    monkeypatch.setattr(fashion, "INSTALLED", little)
    found = prepare()
    expect_little(found, little)
    assert "Debian package" in found.facts["source"]


def test_without_any_source_digits_are_used_and_said_aloud(root):
    images = data.load()
    assert images.name == "digits" and (images.channels, images.height, images.width) == (1, 8, 8)
    assert (len(images.train), len(images.val)) == (1438, 359)
    assert "Fashion-MNIST is not here" in images.note and "digits" in images.note
    assert "DISTLAB_OFFLINE forbids the network" in images.note
    assert "python -m distlab.data" in images.note


def test_offline_asks_no_network_source(root, monkeypatch):
    def forbidden(work, home, say):
        raise AssertionError("the network was asked")

    monkeypatch.setattr(fashion, "NETWORK", {"apt-get": forbidden, "torchvision": forbidden})
    assert prepare().facts["name"] == "digits"
    monkeypatch.setenv("DISTLAB_OFFLINE", "0")
    with pytest.raises(AssertionError, match="the network was asked"):
        prepare()


def test_the_reason_of_each_source_is_said_and_remembered(root, monkeypatch):
    monkeypatch.setenv("DISTLAB_OFFLINE", "0")
    asked = []

    def lacking(name):
        def source(work, home, say):
            asked.append(name)
            (work / "half").write_text("half")
            raise fashion.Unavailable(f"{name} is down")

        return source

    monkeypatch.setattr(fashion, "NETWORK", {"one": lacking("server"), "two": lacking("mirror")})
    for _ in range(2):
        note = prepare().note
        assert "one: server is down; two: mirror is down" in note
    assert asked == ["server", "mirror"]
    prepare(retry=True)
    assert asked == ["server", "mirror"] * 2


def test_torchvision_fetches_from_its_mirror_once(root, little, serve, monkeypatch):
    datasets = pytest.importorskip("torchvision.datasets")
    monkeypatch.setenv("DISTLAB_OFFLINE", "0")
    monkeypatch.setattr(fashion, "NETWORK", {"torchvision": fashion.from_torchvision})
    server = serve(little)
    sums = [(path.name, hashlib.md5(path.read_bytes()).hexdigest()) for path in sorted(little.iterdir())]
    monkeypatch.setattr(datasets.FashionMNIST, "mirrors", [server.address])
    monkeypatch.setattr(datasets.FashionMNIST, "resources", sums)
    expect_little(prepare(), little)
    assert not prepare().fresh
    assert sorted(set(server.asked)) == sorted(f"/{name}" for name, _ in sums)
    assert leftovers(root) == [] and not (root / "FashionMNIST").exists()


@pytest.mark.parametrize("fault", ["swapped", "corrupted", "nobody there"])
def test_torchvisions_mirror_gives_something_else(root, little, serve, monkeypatch, fault):
    datasets = pytest.importorskip("torchvision.datasets")
    monkeypatch.setenv("DISTLAB_OFFLINE", "0")
    monkeypatch.setattr(fashion, "NETWORK", {"torchvision": fashion.from_torchvision})
    server = serve(little)
    sums = [(path.name, hashlib.md5(path.read_bytes()).hexdigest()) for path in sorted(little.iterdir())]
    monkeypatch.setattr(datasets.FashionMNIST, "mirrors", [server.address])
    monkeypatch.setattr(datasets.FashionMNIST, "resources", sums)
    if fault == "swapped":
        # torchvision would take it, the pinned content does not.
        monkeypatch.setitem(fashion.SHA256, "train-images-idx3-ubyte", "0" * 64)
        reason = "train-images-idx3-ubyte"
    elif fault == "corrupted":
        with open(little / "train-images-idx3-ubyte.gz", "r+b") as file:
            file.seek(500)
            file.write(b"xxxx")
        reason = "corrupted"
    else:
        server.shutdown()
        server.server_close()
        reason = "refused"
    found = prepare()
    assert found.facts["name"] == "digits" and reason in found.note
    assert not (root / "fashion-mnist").exists() and leftovers(root) == []


@pytest.fixture
def repository(tmp_path, little, serve, monkeypatch):
    """A Debian repository on 127.0.0.1 with a package of the little set, the only one apt knows."""
    tree, repo = tmp_path / "tree", tmp_path / "repo"
    shutil.copytree(little, tree / "usr/share/datasets/fashion-mnist")
    (tree / "DEBIAN").mkdir()
    control = f"Package: {fashion.PACKAGE}\nVersion: 1\nArchitecture: all\nMaintainer: test\nDescription: little\n"
    (tree / "DEBIAN" / "control").write_text(control)
    repo.mkdir()
    deb = repo / "little.deb"
    subprocess.run(["dpkg-deb", "--build", str(tree), str(deb)], check=True, stdout=subprocess.DEVNULL)
    content = deb.read_bytes()
    (repo / "Packages").write_text(
        f"{control}Filename: ./little.deb\nSize: {len(content)}\nSHA256: {hashlib.sha256(content).hexdigest()}\n"
    )
    server = serve(repo)
    (tmp_path / "sources.list").write_text(f"deb [trusted=yes] {server.address} ./\n")
    (tmp_path / "apt.conf").write_text(
        f'Dir::Etc::SourceList "{tmp_path}/sources.list";\nDir::Etc::SourceParts "/dev/null";\n'
        'Acquire::http::Proxy "DIRECT";\n'
    )
    monkeypatch.setenv("APT_CONFIG", str(tmp_path / "apt.conf"))
    monkeypatch.setenv("DISTLAB_OFFLINE", "0")
    monkeypatch.setattr(fashion, "INSTALLED", PACKAGE_FOLDER)
    monkeypatch.setattr(fashion, "NEARBY", {})
    monkeypatch.setattr(fashion, "NETWORK", {"apt-get": fashion.from_apt})
    return server


@NEEDS_APT
def test_apt_fetches_and_unpacks_the_package_without_installing_it(root, little, repository):
    expect_little(prepare(), little)
    assert "/./little.deb" in repository.asked or "/little.deb" in repository.asked
    assert leftovers(root) == []


@NEEDS_APT
def test_a_package_with_other_content_is_refused(root, repository, monkeypatch):
    monkeypatch.setitem(fashion.SHA256, "t10k-labels-idx1-ubyte", "0" * 64)
    found = prepare()
    assert found.facts["name"] == "digits" and "t10k-labels-idx1-ubyte" in found.note
    assert leftovers(root) == []


@NEEDS_APT
def test_apts_own_error_is_the_reason(root, repository, tmp_path):
    (tmp_path / "repo" / "little.deb").write_bytes(b"short")
    found = prepare()
    assert found.facts["name"] == "digits" and "apt-get: " in found.note
    assert "Failed to fetch" in found.note or "size" in found.note.lower()


@NEEDS_APT
def test_an_unreachable_repository_is_the_reason_not_an_unknown_package(root, repository):
    repository.shutdown()
    repository.server_close()
    note = prepare().note
    assert "apt-get: Failed to fetch" in note and "Unable to locate" not in note


def alive(pid):
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


@pytest.mark.skipif(not shutil.which("setpriv"), reason="no setpriv on this system")
def test_a_killed_preparer_leaves_no_apt_running(root, tmp_path, python):
    tools = tmp_path / "tools"
    tools.mkdir()
    for name in ("apt-get", "dpkg-deb"):
        (tools / name).write_text(
            f"#!/bin/sh\necho $$ > {tmp_path}/pid.new && mv {tmp_path}/pid.new {tmp_path}/pid\nexec sleep 20\n"
        )
        (tools / name).chmod(0o755)
    code = "from distlab.data import fashion; from distlab.data.sets import prepare; fashion.NEARBY = {}; prepare()"
    killed = python(code, PATH=f"{tools}:{os.environ['PATH']}", DISTLAB_OFFLINE="0")
    until = time.monotonic() + 20
    while not (tmp_path / "pid").exists():
        assert time.monotonic() < until and killed.poll() is None
        time.sleep(0.05)
    pid = int((tmp_path / "pid").read_text())
    assert alive(pid)
    killed.kill()
    killed.wait()
    until = time.monotonic() + 5
    while alive(pid):
        assert time.monotonic() < until, "apt-get outlives the process that started it"
        time.sleep(0.05)


def test_an_apt_that_hangs_is_stopped_and_named(root, tmp_path, monkeypatch):
    tools = tmp_path / "tools"
    tools.mkdir()
    for name in ("apt-get", "dpkg-deb"):
        (tools / name).write_text("#!/bin/sh\nexec sleep 30\n")
        (tools / name).chmod(0o755)
    monkeypatch.setenv("PATH", f"{tools}:{os.environ['PATH']}")
    monkeypatch.setenv("DISTLAB_OFFLINE", "0")
    monkeypatch.setattr(fashion, "NETWORK", {"apt-get": fashion.from_apt})
    monkeypatch.setattr(fashion, "DOWNLOAD_SECONDS", 0.3)
    begun = time.monotonic()
    found = prepare()
    assert found.facts["name"] == "digits" and "apt-get was stopped after 0 s" in found.note
    assert time.monotonic() - begun < 10


def test_ranks_that_know_nothing_of_each_other_fetch_once(root, little, tmp_path, python):
    code = """
import json, sys, time
from pathlib import Path
from distlab.data import arrays, fashion
from distlab.data.sets import prepare
fashion.SHA256 = json.loads(sys.argv[2])
def slow(work, root, say):
    with open(sys.argv[3], "a") as count:
        count.write("x")
    time.sleep(0.5)
    return Path(sys.argv[1])
fashion.NEARBY = {"slow": slow}
found = prepare()
images, labels = arrays.read(found.folder, "train")
print(found.facts["name"], int(images.astype(int).sum()), labels.tolist())
"""
    images = values(little / "train-images-idx3-ubyte.gz", 16)
    labels = values(little / "train-labels-idx1-ubyte.gz", 8)
    processes = [python(code, little, json.dumps(fashion.SHA256), tmp_path / "count") for _ in range(2)]
    answers = [process.communicate(timeout=60) for process in processes]
    expected = f"fashion-mnist {int(images.astype(int).sum())} {labels.tolist()}\n"
    assert [out for out, _ in answers] == [expected] * 2, answers
    assert (tmp_path / "count").read_text() == "x"


def test_idx_files_are_checked():
    array = np.arange(24).reshape(2, 3, 4)
    assert np.array_equal(fashion.read_idx(idx(array)), array)
    with pytest.raises(ValueError, match=r"\[2, 3, 4\] cannot have 23 values"):
        fashion.read_idx(idx(array)[:-1])
    with pytest.raises(ValueError, match="cannot have 25 values"):
        fashion.read_idx(idx(array) + b"x")
    for wrong in (b"", b"\0\0\x08", b"\0\0\x09" + idx(array)[3:], b"\x1f\x8b" + idx(array), b"\0\0\x08\x03\0\0"):
        with pytest.raises(ValueError, match="not an idx file"):
            fashion.read_idx(wrong)


def test_the_command_prepares_without_torch_and_then_says_it_is_there(root, little, monkeypatch, capsys):
    code = (
        "import sys; from distlab.data.__main__ import main; status = main(['digits']); "
        "assert 'torch' not in sys.modules and 'torchvision' not in sys.modules; sys.exit(status)"
    )
    first, second = (subprocess.run([sys.executable, "-c", code], capture_output=True, text=True) for _ in range(2))
    assert first.returncode == second.returncode == 0, first.stderr + second.stderr
    assert first.stdout.startswith("digits: 1,438 + 359 images of 1x8x8, 10 classes, from scikit-learn, prepared in")
    assert second.stdout.startswith("digits: 1,438 + 359 images of 1x8x8, 10 classes, from scikit-learn, already there")


def test_the_command_fails_in_one_line(root, capsys):
    from distlab.data.__main__ import main

    assert main(["nowhere", "digits"]) == 1
    out, err = capsys.readouterr()
    assert err.startswith("nowhere: no data set 'nowhere': it is neither fashion-mnist, digits, cifar10, photos nor")
    assert len(err.splitlines()) == 1 and out.startswith("digits: ")


def test_the_real_set(monkeypatch):
    if REAL_DATA:
        monkeypatch.setenv("DISTLAB_DATA", REAL_DATA)
    else:
        monkeypatch.delenv("DISTLAB_DATA")
    if find(data_root() / "fashion-mnist") is None:
        lacking = f"no Fashion-MNIST in {data_root()}: run `python -m distlab.data`"
        (pytest.fail if os.environ.get("CI") else pytest.skip)(lacking)
    images = data.load()
    assert images.name == "fashion-mnist" and images.note == ""
    assert tuple(images.train.images.shape) == (60000, 1, 28, 28)
    assert tuple(images.val.images.shape) == (10000, 1, 28, 28)
    assert images.train.labels.bincount().tolist() == [6000] * 10
    assert images.val.labels.bincount().tolist() == [1000] * 10
    assert len(images.classes) == 10 and images.classes[0] == "T-shirt/top" and images.classes[9] == "Ankle boot"
    # The published mean and deviation of the training images.
    assert images.train.mean == pytest.approx([0.2860], abs=5e-5)
    assert images.train.std == pytest.approx([0.3530], abs=5e-5)
    # The first training image is an ankle boot.
    assert images.train[0][1] == 9
