"""Each of the doctor's checks sees what it is there to see."""

import importlib.metadata
import shutil
import subprocess
import sys
from collections import namedtuple

import pytest
from distlab.doctor import checks, examine
from distlab.hosts.gpus import Gpu

Usage = namedtuple("Usage", "total used free")
Memory = namedtuple("Memory", "available")


def test_an_old_python(monkeypatch):
    monkeypatch.setattr(sys, "version_info", (3, 10, 4))
    assert checks.check_python().state == "wrong"


def test_torch_and_torchvision_that_are_no_pair(monkeypatch):
    versions = {"torch": "2.13.0+cpu", "torchvision": "0.29.1"}
    monkeypatch.setattr(importlib.metadata, "version", versions.__getitem__)
    monkeypatch.setattr(importlib.metadata, "requires", lambda name: ["numpy", "torch==2.14.1"])
    found = checks.check_pair()
    assert found.state == "wrong" and "torchvision wants torch 2.14.1" in found.remedy


def test_a_missing_package(monkeypatch):
    def missing(name):
        raise importlib.metadata.PackageNotFoundError(name)

    monkeypatch.setattr(importlib.metadata, "version", missing)
    assert checks.check_pair().text == "torch is not installed"


def test_imports_that_fail(monkeypatch):
    failed = subprocess.CompletedProcess(
        [], 1, "", "Traceback\nRuntimeError: operator torchvision::nms does not exist\n"
    )
    monkeypatch.setattr(subprocess, "run", lambda *_, **__: failed)
    found = checks.check_imports()
    assert found.state == "wrong" and found.text == "RuntimeError: operator torchvision::nms does not exist"


@pytest.mark.parametrize(("count", "state"), [(0, "fine"), (1, "note"), (4, "fine")])
def test_gpus_against_slots(monkeypatch, count, state):
    monkeypatch.setattr(checks, "list_gpus", lambda: [Gpu(str(index), "T4", 16 << 30) for index in range(count)])
    assert checks.check_gpus().state == state


def test_little_memory_shared_memory_and_disk(monkeypatch):
    monkeypatch.setattr(checks.psutil, "virtual_memory", lambda: Memory(1 << 30))
    assert checks.check_machine().state == "note"
    monkeypatch.setattr(shutil, "disk_usage", lambda place: Usage(64 << 20, 0, 64 << 20))
    assert "--shm-size" in checks.check_shared_memory().remedy
    assert checks.check_run_folder().state == "note"


def test_data_that_is_not_prepared(monkeypatch, tmp_path):
    monkeypatch.setenv("DISTLAB_DATA", str(tmp_path))
    found = checks.check_data()
    assert found.state == "note" and found.remedy == "run distlab data"


def test_ranks_that_do_not_meet(monkeypatch, tmp_path):
    monkeypatch.setenv("DISTLAB_HOSTS", "nowhere.invalid:1")
    found = checks.check_meeting()
    assert found.state == "wrong" and "nowhere.invalid does not resolve" in found.text


def test_agents_of_another_notebook():
    agent = subprocess.Popen([sys.executable, "-m", "distlab.agent"], stdin=subprocess.PIPE, stdout=subprocess.DEVNULL)
    try:
        # Our own agents are not another notebook's, so this one needs another parent.
        outside = "from distlab.doctor.checks import check_leftovers; print(check_leftovers().text)"
        seen = subprocess.run([sys.executable, "-c", outside], capture_output=True, text=True, check=True).stdout
        assert str(agent.pid) in seen
        assert str(agent.pid) not in checks.check_leftovers().text
    finally:
        agent.stdin.close()
        assert agent.wait(timeout=10) == 0


def test_a_check_that_breaks_is_a_diagnosis(monkeypatch):
    def check_stars():
        raise ZeroDivisionError("no stars")

    monkeypatch.setattr(checks, "CHECKS", (check_stars,))
    [found] = examine(meet=False)
    assert (found.name, found.ok, found.text) == ("stars", False, "the check failed: ZeroDivisionError: no stars")
