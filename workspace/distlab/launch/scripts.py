"""From what a person asks for to a script and its arguments."""

import difflib
from pathlib import Path

from distlab.errors import DistlabError
from distlab.runs import WORKSPACE

PACKAGE = Path(__file__).resolve().parents[1]
SCRIPTS, LESSONS = PACKAGE / "scripts", PACKAGE / "lessons"


class ScriptError(DistlabError, ValueError):
    """The script or its options cannot be used; says what to do."""


def script_names() -> list[str]:
    """Names of the training scripts, such as `ddp`, and of the lessons' experiments, such as `ddp/shards`."""
    scripts = [path.stem for path in SCRIPTS.glob("[!_]*.py")]
    experiments = [f"{path.parts[-3]}/{path.stem}" for path in LESSONS.glob("*/experiments/[!_]*.py")]
    return sorted(scripts) + sorted(experiments)


def _named(text: str) -> Path | None:
    lesson, _, name = text.rpartition("/")
    if not name.isidentifier() or (lesson and not lesson.isidentifier()):
        return None
    path = (LESSONS / lesson / "experiments" if lesson else SCRIPTS) / f"{name}.py"
    return path if path.is_file() else None


def find_script(script: object) -> Path:
    """The file of a training script (`ddp`) or an experiment (`ddp/shards`) by name, or of any script by path.

    Raises:
        ScriptError: no such file, or a function where a file is needed.
    """
    if callable(script):
        name = getattr(script, "__name__", "a function")
        raise ScriptError(
            f"run() starts files: ranks on another host cannot see {name}, which exists in this notebook only. "
            "Save it in a .py file and run that"
        )
    text = str(script)
    if named := _named(text):
        return named
    path = Path(text)
    for base in (Path.cwd(), WORKSPACE):
        if (base / path).is_file():
            return (base / path).resolve()
    close = difflib.get_close_matches(text.removesuffix(".py"), script_names(), 1)
    hint = f"did you mean {close[0]}?" if close else f"the lessons' scripts are {', '.join(script_names())}"
    raise ScriptError(f"no script {text!r}, neither by name nor as a file: {hint}")


def to_arguments(options: dict[str, object]) -> list[str]:
    """Command-line words of keyword options.

    >>> to_arguments({"epochs": 1, "lr_scaling": False, "resume": True, "data": None})
    ['--epochs', '1', '--no-lr-scaling', '--resume']
    """
    words: list[str] = []
    for name, value in options.items():
        flag = name.replace("_", "-")
        if value is True:
            words.append(f"--{flag}")
        elif value is False:
            words.append(f"--no-{flag}")
        elif value is not None:
            words += [f"--{flag}", str(value)]
    return words
