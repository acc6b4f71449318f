"""nbval really holds the stored claims of the course against what the cells print now."""

import os
import subprocess
import sys

import nbformat
import policy
import pytest

HOLDS, BROKEN = ": True", ": False"


def run_nbval(path):
    """pytest --nbval on one notebook, in a process of its own, as the test command does it."""
    return subprocess.run(
        [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "--rootdir", str(path.parent)]
        + ["-c", str(policy.ROOT / "pyproject.toml"), str(path)],
        cwd=policy.ROOT,
        capture_output=True,
        text=True,
        env={**os.environ, "CI": ""},
        timeout=240,
        check=False,
    )


@pytest.fixture
def corrupted(tmp_path):
    """Start_Here with one claim's stored output turned around."""
    notebook = nbformat.read(policy.WORKSPACE / "Start_Here.ipynb", as_version=4)
    cell = next(
        cell
        for cell in policy.compared_cells(notebook)
        if any(HOLDS in output.get("text", "") for output in cell["outputs"])
    )
    for output in cell["outputs"]:
        output["text"] = output["text"].replace(HOLDS, BROKEN)
    path = tmp_path / "corrupted.ipynb"
    nbformat.write(notebook, path)
    return path, cell


@pytest.mark.timeout(300)
def test_a_corrupted_claim_turns_the_lesson_red(corrupted):
    path, cell = corrupted
    ran = run_nbval(path)
    assert ran.returncode == 1, ran.stdout + ran.stderr
    assert "1 failed" in ran.stdout
    # The report names the notebook and shows the claim that broke.
    assert "corrupted.ipynb" in ran.stdout
    assert BROKEN in ran.stdout and HOLDS in ran.stdout


def test_a_cell_that_outlives_its_deadline_is_stopped(tmp_path):
    notebook = nbformat.v4.new_notebook()
    notebook["metadata"]["kernelspec"] = {"name": "python3", "display_name": "Python 3", "language": "python"}
    cell = nbformat.v4.new_code_cell("import time; time.sleep(60); print('late')", execution_count=1)
    cell["outputs"] = [nbformat.v4.new_output("stream", name="stdout", text="late\n")]
    notebook["cells"] = [cell]
    path = tmp_path / "late.ipynb"
    nbformat.write(notebook, path)
    ran = subprocess.run(
        [
            sys.executable,
            "-m",
            "pytest",
            "-p",
            "no:cacheprovider",
            "--nbval",
            "--nbval-cell-timeout=3",
            "-c",
            os.devnull,
            str(path),
        ],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=90,
        check=False,
    )
    assert ran.returncode == 1
    assert "timed out" in ran.stdout.lower() or "timeout" in ran.stdout.lower()
