"""pytest as the engine: each requirement is a test function, its failure is the sentence.

Runs in this process, sealed: no configuration, plugin, conftest or option from outside, nothing
printed and nothing written.
"""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from distlab.checks.result import Requirement
from distlab.launch import RunResult

SEALED = [
    *("-c", os.devnull),
    "--noconftest",
    "--disable-plugin-autoload",
    "--import-mode=importlib",
    "--assert=plain",
    "--capture=no",
]
# They print, write caches, or change hooks of the process that a notebook or an outer pytest needs.
UNWANTED = (
    "terminal",
    "cacheprovider",
    "faulthandler",
    "unraisableexception",
    "threadexception",
    "logging",
    "warnings",
)
OUTSIDE = ("PYTEST_ADDOPTS", "PYTEST_PLUGINS", "PYTEST_CURRENT_TEST", "PYTEST_DISABLE_PLUGIN_AUTOLOAD")


def needs(*names: str) -> pytest.MarkDecorator:
    """A requirement that can only be judged when others hold: `@needs("runs")`."""
    return pytest.mark.needs(*names)


@dataclass(frozen=True)
class Job:
    """What requirements judge: the run of the probe, and what kept it from its end."""

    result: RunResult
    trouble: str | None

    def each(self, event: str) -> list[dict]:
        """Each rank's record of an event, in rank order."""
        return [record for _, record in sorted(self.result.last(event).items())]


class _Judge:
    def __init__(self, job: Job) -> None:
        self._job = job
        self.requirements: dict[str, Requirement] = {}
        self.crashed: BaseException | None = None

    @pytest.fixture
    def job(self) -> Job:
        """The run that is judged."""
        return self._job

    def pytest_configure(self, config: pytest.Config) -> None:
        config.addinivalue_line("markers", "needs(*names): requirements that must hold first")

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_setup(self, item: pytest.Function) -> None:
        wanted = [name for mark in item.iter_markers("needs") for name in mark.args]
        if any(self.requirements[name].state != "holds" for name in wanted):
            pytest.skip("an earlier requirement comes first")

    def pytest_runtest_makereport(self, item: pytest.Function, call: pytest.CallInfo) -> None:
        failure = call.excinfo.value if call.excinfo else None
        if call.when == "teardown" or (call.when == "setup" and failure is None):
            return
        name = item.name.removeprefix("test_")
        state, mistake = "holds", ""
        if isinstance(failure, pytest.skip.Exception):
            state = "open"
        elif isinstance(failure, (AssertionError, pytest.fail.Exception)) and call.when == "call":
            state, mistake = "broken", str(failure)
        elif failure is not None:
            # A fault in the requirement itself is no mistake of the attendee.
            self.crashed = self.crashed or failure
        text = (item.function.__doc__ or name).strip().splitlines()[0].rstrip(".")
        self.requirements[name] = Requirement(name, text, state, mistake)


@contextmanager
def _alone() -> Iterator[None]:
    before = {name: os.environ.pop(name) for name in OUTSIDE if name in os.environ}
    try:
        yield
    finally:
        for name in OUTSIDE:
            os.environ.pop(name, None)
        os.environ.update(before)


def judge(requirements: Path, job: Job) -> list[Requirement]:
    """Run the test functions of a file over a job.

    Raises:
        RuntimeError: a requirement could not be judged, by its own fault.
    """
    judged = _Judge(job)
    unwanted = [word for name in UNWANTED for word in ("-p", f"no:{name}")]
    options = [str(requirements), f"--rootdir={requirements.parent}", *SEALED, *unwanted]
    with _alone():
        status = pytest.main(options, plugins=[judged])
    if judged.crashed or status not in (pytest.ExitCode.OK, pytest.ExitCode.TESTS_FAILED):
        raise RuntimeError(f"{requirements.stem}: a requirement failed by its own fault ({status})") from judged.crashed
    return list(judged.requirements.values())
