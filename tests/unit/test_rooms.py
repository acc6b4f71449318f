"""A room of the package imports only from rooms above it, and lessons do not import each other.

import-linter reads both rules from pyproject.toml. Each is seen to fail on a copy with one import too many.
"""

import os
import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).parents[2]
PACKAGE = REPOSITORY / "workspace" / "distlab"
CONTRACTS = tomllib.loads((REPOSITORY / "pyproject.toml").read_text())["tool"]["importlinter"]["contracts"]


def lint(workspace: Path) -> subprocess.CompletedProcess:
    """What lint-imports says about the package `distlab` in a folder."""
    command = [sys.executable, "-c", "from importlinter.cli import lint_imports_command; lint_imports_command()"]
    words = ["--no-cache", "--no-logo", REPOSITORY / "pyproject.toml"]
    environment = os.environ | {"PYTHONPATH": str(workspace), "COLUMNS": "200"}
    return subprocess.run([*command, *words], cwd=workspace, env=environment, capture_output=True, text=True)


@pytest.fixture
def copy(tmp_path):
    """A copy of the package's Python files."""
    shutil.copytree(PACKAGE, tmp_path / "distlab", ignore=shutil.ignore_patterns("__pycache__"))
    return tmp_path


def test_rooms_and_lessons_keep_to_the_rules():
    done = lint(PACKAGE.parent)
    assert done.returncode == 0, done.stdout + done.stderr
    assert f"{len(CONTRACTS)} kept, 0 broken" in done.stdout


PLANTED = {
    "hosts/host.py": "from distlab.launch import run",
    "models/wrapped.py": "def late():\n    import distlab.loop",
    "agent/agent.py": "from distlab import process",
    "scripts/ddp.py": "from distlab.lessons import ddp",
    "lessons/pipeline/case.py": "from distlab.scripts import pipeline",
    "lessons/ddp/experiments/shards.py": "from distlab.lessons.messages import LESSON",
}
NAMED = (
    "distlab.hosts.host -> distlab.launch",
    "distlab.models.wrapped -> distlab.loop",
    "distlab.agent.agent -> distlab.process",
    "distlab.scripts.ddp -> distlab.lessons.ddp",
    "distlab.lessons.pipeline.case -> distlab.scripts.pipeline",
    "distlab.lessons.ddp.experiments.shards -> distlab.lessons.messages",
)


def test_each_import_that_points_down_is_named(copy):
    for file, line in PLANTED.items():
        with (copy / "distlab" / file).open("a") as module:
            module.write(f"\n{line}\n")
    done = lint(copy)
    assert done.returncode == 1, done.stdout + done.stderr
    assert [importing for importing in NAMED if importing not in done.stdout] == [], done.stdout
    assert f"0 kept, {len(CONTRACTS)} broken" in done.stdout


def test_a_new_room_must_be_given_its_place(copy):
    (copy / "distlab" / "cellar.py").write_text("")
    done = lint(copy)
    assert done.returncode == 1 and "distlab.cellar" in done.stdout, done.stdout + done.stderr


def test_the_map_has_the_rooms_in_the_same_order():
    table = (REPOSITORY / "docs/architecture.md").read_text().partition("| room |")[2].partition("\n\n")[0]
    table = re.findall(r"^\| ((?:`\w+`(?:, )?)+) \|", table, re.M)
    rooms = [room for row in table for room in re.findall(r"\w+", row)]
    levels = [re.findall(r"\w+", level) for level in CONTRACTS[0]["layers"][::-1]]
    height = {room: number for number, level in enumerate(levels) for room in level}
    here = [room for room in height if (PACKAGE / room).is_dir() or (PACKAGE / f"{room}.py").is_file()]
    assert sorted(rooms) == sorted(here)
    assert [height[room] for room in rooms] == sorted(height[room] for room in rooms)
