"""What holds for all tests: runs in a folder of their own, no silent skip in CI, a tally at the end."""

import importlib.util
import os
import signal
import tempfile
from collections import Counter
from pathlib import Path

import pytest

# Fixtures of hosts that stay warm, for tests of lessons and of hosts alike.
from fixtures import fresh, mark, notebook, temporary, warm, warm_session  # noqa: F401

os.environ["DISTLAB_RUNS"] = tempfile.mkdtemp(prefix="distlab-test-runs-")
os.environ["TQDM_DISABLE"] = "1"
# In the background of a script, or under nohup, all that tests start would be deaf to these two.
signal.signal(signal.SIGINT, signal.default_int_handler)
signal.signal(signal.SIGHUP, lambda *_: None)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """A lesson whose package is not here is left out, with the reason; in CI that is a failure."""
    from distlab import course

    for lesson in course.lessons():
        lacking = [need for need in lesson.needs if importlib.util.find_spec(need) is None]
        if lacking:
            reason = f"{lesson.title} needs {', '.join(lacking)}: make {' '.join(lacking)}"
            for item in (one for one in items if one.path == lesson.path):
                item.add_marker(pytest.mark.skip(reason=reason))


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

    ran = {Path(report.fspath).name for report in terminalreporter.stats.get("passed", []) if ".ipynb" in report.nodeid}
    if ran:
        terminalreporter.section("lessons")
    for path in policy.notebooks():
        if path.name in ran:
            terminalreporter.write_line(policy.tally(path))


def pytest_sessionfinish(session: pytest.Session) -> None:
    """In CI every engine must be there, so a skipped test is a failed one."""
    reporter = session.config.pluginmanager.get_plugin("terminalreporter")
    skipped = reporter.stats.get("skipped", []) if reporter else []
    if os.environ.get("CI") and skipped and session.exitstatus == 0:
        for report in skipped:
            reporter.write_line(f"skipped, which fails in CI: {report.nodeid}")
        session.exitstatus = pytest.ExitCode.TESTS_FAILED
