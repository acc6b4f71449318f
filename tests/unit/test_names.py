"""Names tell what they name: no function hides a module, errors for people have one base, loops name their items."""

import ast
import importlib
import inspect
import json
import pkgutil
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import distlab
import pytest
from distlab.errors import DistlabError

PACKAGES = ["distlab"] + [module.name for module in pkgutil.walk_packages(distlab.__path__, "distlab.") if module.ispkg]
# Programs, some of which join an MPI job or freeze the garbage collector as soon as they are imported.
PROGRAMS = (".experiments", ".scripts", ".__main__", ".preload")
# Exceptions that nobody is meant to read, and why.
FOR_PROGRAMS = {
    "distlab.checks.engine.Open": "tells the engine that a requirement cannot be judged yet",
    "distlab.lessons.pipeline.check.probe.Halt": "passes through an attendee's `except Exception` to end a probe",
}


REPOSITORY = Path(__file__).resolve().parents[2]
FIND_HIDDEN = """
import importlib, json, pkgutil, sys
from types import ModuleType
found = {}
for package in map(importlib.import_module, sys.argv[1:]):
    names = {module.name for module in pkgutil.iter_modules(package.__path__)}
    own = names & {*vars(package), *getattr(package, "__all__", [])}
    found[package.__name__] = sorted(name for name in own if not isinstance(getattr(package, name), ModuleType))
print(json.dumps(found))
"""


def find_hidden(*packages: str) -> dict[str, list[str]]:
    """Submodules that `import distlab.x.y as y` does not give, by package, in a fresh process."""
    command = [sys.executable, "-c", FIND_HIDDEN, *packages]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.fixture(scope="module")
def hidden():
    return find_hidden(*PACKAGES)


@pytest.mark.parametrize("package", PACKAGES)
def test_no_function_hides_a_module(hidden, package):
    assert hidden[package] == []


def test_a_function_that_hides_a_module_would_be_seen(tmp_path, monkeypatch):
    (tmp_path / "house").mkdir()
    (tmp_path / "house" / "__init__.py").write_text("from house.door import door\n")
    (tmp_path / "house" / "door.py").write_text("def door(): ...\n")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    assert find_hidden("house") == {"house": ["door"]}


def test_hosts_is_a_module_that_can_be_called():
    import distlab.hosts as by_import
    from distlab import hosts

    assert hosts is by_import and isinstance(hosts, ModuleType)
    assert str(hosts()) == str(by_import.find())
    assert [host.name for host in by_import.parse("node1:1,node2:2")] == ["node1", "node2"]


def exceptions() -> dict[str, type]:
    """All public exception classes of the package, by their full name."""
    found = {}
    for module in pkgutil.walk_packages(distlab.__path__, "distlab."):
        if any(f"{program}." in f"{module.name}." for program in PROGRAMS):
            continue
        for name, value in vars(importlib.import_module(module.name)).items():
            public = not name.startswith("_") and getattr(value, "__module__", None) == module.name
            if public and inspect.isclass(value) and issubclass(value, BaseException):
                found[f"{module.name}.{name}"] = value
    return found


def test_errors_meant_for_people_have_one_base():
    others = {name for name, kind in exceptions().items() if not issubclass(kind, DistlabError)}
    assert others == set(FOR_PROGRAMS)


def loops_over_one(source: str) -> list[int]:
    """Lines of loops whose variable is called `one`, which says nothing of what it is; `one, other` is a pair."""
    loops = [node for node in ast.walk(ast.parse(source)) if isinstance(node, ast.For | ast.comprehension)]
    targets = [[name for name in ast.walk(loop.target) if isinstance(name, ast.Name)] for loop in loops]
    alone = [names for names in targets if not {"other", "another", "two"} & {name.id for name in names}]
    return [name.lineno for names in alone for name in names if name.id == "one"]


@pytest.mark.parametrize("folder", ["workspace", "tests", "bench"])
def test_loops_name_what_they_go_through(folder):
    found = {str(file): loops_over_one(file.read_text()) for file in (REPOSITORY / folder).rglob("*.py")}
    assert {file: lines for file, lines in found.items() if lines} == {}


def test_a_loop_that_does_not_would_be_seen():
    assert loops_over_one("for rank, one in ranks:\n    pass\n[one for one in ranks]\n") == [1, 3]
    assert loops_over_one("for one, other in pairs:\n    pass\n") == []
