"""From what a person asks for to a script and its arguments."""

import difflib
from pathlib import Path

from distlab.runs import WORKSPACE

PACKAGE = Path(__file__).resolve().parents[1]
# Training scripts, and the small experiments behind single claims of a lesson.
FOLDERS = (PACKAGE / "scripts", PACKAGE / "experiments")


class ScriptError(ValueError):
    """The script or its options cannot be used; says what to do."""


def script_names() -> list[str]:
    """Names of the lessons' scripts and experiments."""
    return sorted(path.stem for folder in FOLDERS for path in folder.glob("*.py") if not path.stem.startswith("_"))


def find_script(script: object) -> Path:
    """The file of a lesson's script by name (`ddp`), or of any script by path.

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
    for folder in FOLDERS:
        lesson = folder / f"{text}.py"
        if text.isidentifier() and lesson.exists():
            return lesson
    path = Path(text)
    for base in (Path.cwd(), WORKSPACE):
        if (base / path).is_file():
            return (base / path).resolve()
    close = difflib.get_close_matches(path.stem, script_names(), 1)
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
