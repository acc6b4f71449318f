"""What holds for all tests: runs in a folder of their own, no silent skip in CI, a tally at the end."""

import os
import sys
import tempfile
from pathlib import Path

import pytest

LESSONS = Path(__file__).parent / "lessons"
sys.path.insert(0, str(LESSONS))

os.environ["DISTLAB_RUNS"] = tempfile.mkdtemp(prefix="distlab-test-runs-")
os.environ["TQDM_DISABLE"] = "1"


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Say how much of each notebook was compared, so that a green run cannot be an empty one."""
    import policy

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
