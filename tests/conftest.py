"""What holds for all tests: their order, whose turn it is, no silent skip in CI, and how a run ends."""

import importlib
import importlib.util
import os
import re
import signal
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import lanes
import pytest
import turns

# Fixtures of hosts that stay warm, for tests of lessons and of hosts alike.
from fixtures import fresh, mark, notebook, temporary, warm, warm_session  # noqa: F401

os.environ["DISTLAB_RUNS"] = tempfile.mkdtemp(prefix="distlab-test-runs-")
os.environ["TQDM_DISABLE"] = "1"
# Threads of one computation wait for each other by spinning: with three processes beside it, a run that takes
# 7 s in one thread took 57 s in two. Before torch is imported, which reads it once.
os.environ.setdefault("OMP_NUM_THREADS", "1")
# In the background of a script, or under nohup, all that tests start would be deaf to these two.
signal.signal(signal.SIGINT, signal.default_int_handler)
signal.signal(signal.SIGHUP, lambda *_: None)

# Tests that allow few seconds for what two busy cores may take longer for.
TIMED = re.compile(
    r"test_kernel\.py|::test_(a_notebook_with_live_ranks|a_forkserver_is_killed|an_interrupt_while_hosts_join"
    r"|a_session_fails_at_once_and_closes_without_a_trace|four_ranks_over_ssh|a_host_refuses|a_host_never_answers)\b"
)
HOROVOD_SECONDS = ENGINE_SECONDS = 1500


def _lesson(item: pytest.Item) -> object | None:
    from distlab import course

    return next((lesson for lesson in course.lessons() if lesson.path == item.path), None)


def _lacking(item: pytest.Item) -> list[str]:
    """Packages that an item's lesson needs and that are not here."""
    lesson = _lesson(item) if item.path.suffix == ".ipynb" else None
    importlib.invalidate_caches()
    return [need for need in lesson.needs if importlib.util.find_spec(need) is None] if lesson else []


def pytest_configure(config: pytest.Config) -> None:
    """One folder for the turns of all processes; the markers that tests may have."""
    config.addinivalue_line("markers", "alone: timed, so no other test runs meanwhile")
    config.addinivalue_line("markers", "horovod: waits until a Horovod that is being built is ready")
    if not hasattr(config, "workerinput"):
        os.environ["DISTLAB_TEST_TURNS"] = tempfile.mkdtemp(prefix="distlab-test-turns-")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Early what needs nothing, late what waits for Horovod or an image; names stand in for marks."""
    items.sort(key=lambda item: lanes.place(item.nodeid))
    for item in items:
        if TIMED.search(item.nodeid):
            item.add_marker("alone")
        if lanes.HOROVOD.search(item.nodeid):
            item.add_marker("horovod")


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: object) -> object:
    """Two processes take whole pieces of work."""
    return lanes.scheduler(config, log)


def _wait_for_horovod() -> None:
    from distlab.horovod_wheel import state

    until = time.monotonic() + HOROVOD_SECONDS
    while state.current().name == "building" and time.monotonic() < until:
        time.sleep(0.5)


def _wait_for_engine(lock: str | None) -> None:
    engines = os.environ.get("DISTLAB_ENGINES")
    if lock and engines:
        turns.wait(Path(engines) / lock, ENGINE_SECONDS)


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_protocol(item: pytest.Item) -> Iterator[None]:
    """Waits before the test's own time begins: for Horovod, for an engine, for a turn."""
    if item.get_closest_marker("horovod"):
        _wait_for_horovod()
    _wait_for_engine(lanes.lock(item.nodeid))
    with turns.turn(Path(os.environ["DISTLAB_TEST_TURNS"]), item.get_closest_marker("alone") is not None):
        return (yield)


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    """A lesson whose package is not here is left out, with the reason; in CI that is a failure."""
    if lacking := _lacking(item):
        lesson = _lesson(item)
        remedy = lesson.builds().remedy if lesson.builds else "make lab"
        pytest.skip(f"{lesson.title} needs {', '.join(lacking)}: {remedy}")


def _left_out(reports: list[pytest.TestReport]) -> dict[tuple[str, str], int]:
    """How many tests were skipped, by file and reason."""
    return dict(Counter((report.nodeid.partition("::")[0], report.longrepr[2]) for report in reports))


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Say what was left out, and how much of each notebook was compared: a green run is never an empty one."""
    import policy

    left_out = _left_out(terminalreporter.stats.get("skipped", []))
    if left_out:
        terminalreporter.section("NOT TESTED HERE", yellow=True, bold=True)
    for (file, reason), count in sorted(left_out.items()):
        terminalreporter.write_line(f"{file}: {count} left out. {reason}", yellow=True)

    files = {report.nodeid.partition("::")[0] for report in terminalreporter.stats.get("passed", [])}
    ran = {Path(file).name for file in files if file.endswith(".ipynb")}
    if ran:
        terminalreporter.section("lessons")
    for path in policy.notebooks():
        if path.name in ran:
            terminalreporter.write_line(policy.tally(path))


def _reports(config: pytest.Config, *outcomes: str) -> list:
    reporter = config.pluginmanager.get_plugin("terminalreporter")
    return [report for outcome in outcomes for report in reporter.stats.get(outcome, [])] if reporter else []


def _failing(config: pytest.Config) -> tuple[str, ...]:
    """What counts as a failure: in CI every engine must be there, so a skipped test does."""
    return ("failed", "error", "skipped") if os.environ.get("CI") else ("failed", "error")


def pytest_sessionfinish(session: pytest.Session) -> None:
    """The status says that something failed, also where it only was left out."""
    if session.exitstatus == 0 and _reports(session.config, *_failing(session.config)):
        for report in _reports(session.config, "skipped"):
            session.config.get_terminal_writer().line(f"skipped, which fails in CI: {report.nodeid}")
        session.exitstatus = pytest.ExitCode.TESTS_FAILED


def pytest_unconfigure(config: pytest.Config) -> None:
    """The very last line counts all tests, of all processes."""
    if _reports(config, "passed", *_failing(config)):
        passed, failed = (len(_reports(config, *outcomes)) for outcomes in (("passed",), _failing(config)))
        print(f"{passed} passed, {failed} failed", flush=True)
