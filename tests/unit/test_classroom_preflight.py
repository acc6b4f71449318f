"""What the preflight makes of a machine's disk, memory, cores, shared memory and networks."""

import shutil
from collections import namedtuple

import pytest
from distlab.classroom import preflight
from distlab.classroom.seats import room
from distlab.classroom.settings import DEFAULTS

Usage = namedtuple("Usage", "total used free")
GIB = 1 << 30


@pytest.fixture
def disk(monkeypatch):
    """A disk with so many GiB free, and an image that is there or not."""

    def make(free: float, built: bool) -> None:
        monkeypatch.setattr(shutil, "disk_usage", lambda place: Usage(100 * GIB, 0, int(free * GIB)))
        monkeypatch.setattr(preflight.engine, "info", lambda field: "/var/lib/docker")
        monkeypatch.setattr(preflight.engine, "image_exists", lambda name: built)

    return make


@pytest.mark.parametrize(
    ("free", "built", "state"), [(16, False, "fine"), (14, False, "wrong"), (3, True, "fine"), (1, True, "wrong")]
)
def test_disk(disk, free, built, state):
    disk(free, built)
    found = preflight.check_disk(DEFAULTS)
    assert found.state == state and f"{free} GiB free in /var/lib/docker" in found.text
    assert (state == "fine") == (not found.remedy)


@pytest.mark.parametrize(
    ("everything", "free", "seats", "state", "remedy"),
    [
        (8, 5, "", "fine", ""),
        (8, 3, "", "note", "close other programs"),
        (3, 3, "", "wrong", "take a machine that has 4 GiB"),
        (64, 60, "20", "wrong", "make preflight SEATS=16 fits"),
        (128, 100, "20", "fine", ""),
    ],
)
def test_memory(monkeypatch, everything, free, seats, state, remedy):
    monkeypatch.setattr(preflight, "memory", lambda text: (everything * GIB, free * GIB))
    found = preflight.check_memory(room(seats))
    assert (found.state, found.remedy) == (state, remedy)


def test_memory_as_linux_tells_it():
    assert preflight.memory("MemTotal:  1024 kB\nMemFree: 5 kB\nMemAvailable:   512 kB\n") == (1 << 20, 1 << 19)


@pytest.mark.parametrize(
    ("text", "state"),
    [
        *[(text, "fine") for text in ("1gb", "256m", "256MB", "0.5g", "1073741824", "1 gb")],
        *[(text, "wrong") for text in ("255m", "64mb", "1000", "much", "1tb2", "gb")],
    ],
)
def test_shared_memory(text, state):
    found = preflight.check_shared_memory(DEFAULTS | {"WORKSHOP_SHM": text})
    assert found.state == state and text in found.text and (state == "fine") == (not found.remedy)


@pytest.mark.parametrize(
    ("cores", "seats", "state"), [(2, "", "fine"), (1, "", "note"), (40, "20", "fine"), (8, "20", "note")]
)
def test_cores(monkeypatch, cores, seats, state):
    monkeypatch.setattr(preflight, "machine_cores", lambda: cores)
    assert preflight.check_cores(room(seats)).state == state


def test_networks():
    assert preflight.check_networks(room("20"), DEFAULTS).state == "fine"
    assert "WORKSHOP_SUBNET=" in preflight.check_networks(room("30"), DEFAULTS).remedy
    found = preflight.check_networks(room("30"), DEFAULTS | {"WORKSHOP_SUBNET": "10.123.0.0/24"})
    assert (found.state, found.text) == ("fine", "10.123.1.0/24 to 10.123.30.0/24")


def test_a_check_that_breaks_is_a_diagnosis():
    def check_stars():
        raise ZeroDivisionError("no stars")

    found = preflight._look("stars", check_stars)
    assert (found.name, found.state, found.text) == ("stars", "wrong", "the check failed: ZeroDivisionError: no stars")
