"""Two simulated hosts whose agents stay warm for all tests, and a check after each that nothing is left."""

import tempfile
import uuid
from pathlib import Path

import leftovers
import pytest
from distlab.hosts import parse
from kernel import Notebook
from running import TWO_BY_TWO, MarkedSession, Runner


@pytest.fixture(scope="session")
def warm_session():
    """Agents of node1 and node2, warm; after all tests they are closed and nothing is left."""
    with MarkedSession() as session:
        session.warm(parse(TWO_BY_TWO))
        yield session
    leftovers.assert_nothing_left(session.mark, 1.0)


@pytest.fixture
def warm(warm_session, tmp_path, monkeypatch):
    """Runs scripts on warm hosts; after the test they must be idle again."""
    monkeypatch.setenv("DISTLAB_RUNS", str(tmp_path / "runs"))
    yield Runner(warm_session)
    warm_session.assert_idle()


@pytest.fixture
def temporary(monkeypatch):
    """A folder for temporary files of what a test starts; no folder of ours is left in it."""
    # A short path, since sockets lie in it and their paths are limited.
    with tempfile.TemporaryDirectory(prefix="two-") as folder:
        monkeypatch.setenv("TMPDIR", folder)
        yield Path(folder)
        left = [path.name for path in Path(folder).iterdir()]
        assert not [name for name in left if name.startswith(("distlab-", "pymp-", "torchelastic_"))]


@pytest.fixture
def fresh(tmp_path, monkeypatch, temporary):
    """Like `warm`, with agents of its own that end with the test."""
    monkeypatch.setenv("DISTLAB_RUNS", str(tmp_path / "runs"))
    with MarkedSession() as session:
        yield Runner(session)
        session.assert_idle()
    leftovers.assert_nothing_left(session.mark, 1.0)


@pytest.fixture
def mark(tmp_path, monkeypatch, temporary):
    """A mark for processes that a test starts itself; all of them must have ended after it."""
    monkeypatch.setenv("DISTLAB_RUNS", str(tmp_path / "runs"))
    name = uuid.uuid4().hex
    yield name
    leftovers.assert_nothing_left(name, 0.1)


@pytest.fixture
def notebook(mark):
    """A kernel of the test's own; nothing that it started outlives it."""
    kernel = Notebook(mark)
    yield kernel
    kernel.client.stop_channels()
    kernel.manager.shutdown_kernel(now=True)
    leftovers.assert_nothing_left(mark, 5.0)
