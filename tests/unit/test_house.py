"""One lesson, one folder: what is in it, what it is called, and who uses it."""

import ast
import json
import re
import sys

import pytest
from distlab.course import FOLDER, folders
from distlab.runs import WORKSPACE

LESSONS = folders()
CHECKS = {"__init__.py", "probe.py", "requirements.py", "mistakes.py"}


def modules(lesson, room):
    """The Python files of a room of a lesson, by name."""
    return {path.stem: path for path in (FOLDER / lesson / room).glob("[!_]*.py")}


def every(room):
    return [pytest.param(lesson, name, id=f"{lesson}/{name}") for lesson in LESSONS for name in modules(lesson, room)]


def code(notebook):
    """All code of a notebook."""
    cells = json.loads(notebook.read_text())["cells"]
    return "\n".join("".join(cell["source"]) for cell in cells if cell["cell_type"] == "code")


@pytest.mark.parametrize("lesson", LESSONS)
def test_a_lesson_has_its_rooms(lesson):
    for room in ("experiments", "pictures"):
        assert (FOLDER / lesson / room / "__init__.py").is_file() and modules(lesson, room)
    if LESSONS[lesson].exercise is None:
        assert not (FOLDER / lesson / "check").exists()
    else:
        assert sorted(CHECKS - {path.name for path in (FOLDER / lesson / "check").iterdir()}) == []


def test_cards_and_notebooks_belong_together():
    files = [card.file for card in LESSONS.values()]
    assert len(set(files)) == len(files)
    # A notebook may be to come. One that is there and has no card would be in no course.
    assert {path.name for path in WORKSPACE.glob("[0-9][0-9]_*.ipynb")} <= set(files)


@pytest.mark.parametrize("lesson", LESSONS)
def test_the_exercise_of_a_card_is_there(lesson):
    exercise = LESSONS[lesson].exercise
    assert exercise is None or all((WORKSPACE / way / f"{exercise}.py").is_file() for way in ("exercises", "solutions"))


@pytest.mark.parametrize("room", ["experiments", "pictures"])
def test_no_name_hides_a_module_of_python(room):
    """An experiment run as a plain file puts its folder first on sys.path: `import trace` would find it there."""
    names = {f"{lesson}/{name}" for lesson in LESSONS for name in modules(lesson, room)}
    assert {name for name in names if name.split("/")[1] in sys.stdlib_module_names} == set()


@pytest.mark.parametrize(("lesson", "name"), every("experiments"))
def test_an_experiment_has_a_main_and_is_used(lesson, name):
    source = modules(lesson, "experiments")[name].read_text()
    functions = {node.name for node in ast.parse(source).body if isinstance(node, ast.FunctionDef)}
    assert "main" in functions and source.endswith('if __name__ == "__main__":\n    main()\n')
    others = [path.read_text() for other, path in modules(lesson, "experiments").items() if other != name]
    started_by_another = any(re.search(rf"\b{name}\b", other) for other in others)
    card = LESSONS[lesson]
    assert started_by_another or not card.here or f'"{lesson}/{name}"' in code(card.path)


@pytest.mark.parametrize(("lesson", "name"), every("pictures"))
def test_a_picture_has_the_name_of_its_experiment(lesson, name):
    """One that draws something else says in its docstring what: "Draws what ..."."""
    says = ast.get_docstring(ast.parse(modules(lesson, "pictures")[name].read_text())) or ""
    assert name in modules(lesson, "experiments") or re.search(r"\bDraws\b", says), says
    card = LESSONS[lesson]
    assert not card.here or f"pictures.{name}." in code(card.path)
