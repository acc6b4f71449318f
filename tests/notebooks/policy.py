"""What a notebook of this course must be, as functions that return what is wrong."""

import json
import re
from pathlib import Path

import nbformat

ROOT = Path(__file__).resolve().parents[2]
WORKSPACE = ROOT / "workspace"
NOT_COMPARED = {"nbval-ignore-output", "nbval-skip"}
LEAST_COMPARED = 5
SCREEN_LINES, SCREEN_COLUMNS = 45, 110
# As many columns as JupyterLab shows of a cell in a window of 1,280 pixels.
CODE_LINES, CODE_COLUMNS = 12, 107
LESSON_CELLS = range(12, 26)
COLOUR = re.compile(r"\x1b\[[0-9;]*m")
MACHINE_PATH = re.compile(r"(?<![\w.])/(?:home|root|work|tmp|Users|builds)/[\w.-]+")


def notebooks() -> list[Path]:
    """Every notebook that an attendee sees."""
    return sorted(path for path in WORKSPACE.rglob("*.ipynb") if ".ipynb_checkpoints" not in path.parts)


def is_lesson(path: Path) -> bool:
    """True for the numbered notebooks."""
    return path.name[:2].isdigit()


def code_cells(notebook: dict) -> list[dict]:
    """Cells that run, empty ones left out."""
    return [cell for cell in notebook["cells"] if cell["cell_type"] == "code" and "".join(cell["source"]).strip()]


def _tags(cell: dict) -> set[str]:
    return set(cell["metadata"].get("tags", []))


def _text(output: dict) -> str:
    text = output.get("text") or output.get("data", {}).get("text/plain") or ""
    return COLOUR.sub("", "".join(text))


def compared_cells(notebook: dict) -> list[dict]:
    """Cells whose stored text nbval holds against what they print now."""
    return [
        cell
        for cell in code_cells(notebook)
        if not _tags(cell) & NOT_COMPARED and any(_text(output).strip() for output in cell["outputs"])
    ]


def _name(cell: dict) -> str:
    return f"cell {cell['id']}"


def wrong_form(notebook: dict) -> list[str]:
    """Format, ids and kernel."""
    wrong = []
    if (notebook["nbformat"], notebook["nbformat_minor"]) < (4, 5):
        wrong.append("the format is older than 4.5")
    ids = [cell.get("id") for cell in notebook["cells"]]
    if None in ids or len(set(ids)) != len(ids):
        wrong.append("a cell has no id, or two have the same")
    kernel = notebook["metadata"].get("kernelspec", {}).get("name")
    if kernel != "python3":
        wrong.append(f"the kernel is {kernel}, not python3")
    return wrong


def wrong_execution(notebook: dict) -> list[str]:
    """Executed from the first cell to the last, without an error."""
    wrong = []
    counts = [cell["execution_count"] for cell in code_cells(notebook)]
    if counts != list(range(1, len(counts) + 1)):
        wrong.append(f"cells were not executed in order from a fresh start: {counts}")
    for cell in code_cells(notebook):
        if any(output["output_type"] == "error" for output in cell["outputs"]):
            wrong.append(f"{_name(cell)} stores an error")
    return wrong


def wrong_output(notebook: dict) -> list[str]:
    """Outputs fit a screen and say nothing of the machine that made them."""
    wrong = []
    for cell in code_cells(notebook):
        lines = [line for output in cell["outputs"] for line in _text(output).splitlines()]
        if len(lines) > SCREEN_LINES:
            wrong.append(f"{_name(cell)} prints {len(lines)} lines, more than the {SCREEN_LINES} of a screen")
        wide = max(map(len, lines), default=0)
        if wide > SCREEN_COLUMNS:
            wrong.append(f"{_name(cell)} prints a line of {wide} columns; a reader would scroll sideways")
        found = MACHINE_PATH.search(json.dumps(cell["outputs"]) + "".join(cell["source"]))
        if found:
            wrong.append(f"{_name(cell)} holds {found[0]}, a path of one machine")
    return wrong


def wrong_comparison(notebook: dict) -> list[str]:
    """Enough is compared, and what is compared is stable by its kind."""
    compared = compared_cells(notebook)
    wrong = []
    if len(compared) < LEAST_COMPARED:
        wrong.append(f"nbval compares {len(compared)} cells, fewer than {LEAST_COMPARED}")
    for cell in compared:
        if any(output.get("name") == "stderr" for output in cell["outputs"]):
            wrong.append(f"{_name(cell)} is compared and prints to stderr, where warnings come and go")
    return wrong


def wrong_source(path: Path, notebook: dict) -> list[str]:
    """Short cells, no code written to files from cells, links that lead somewhere, pictures with words."""
    wrong = []
    for cell in code_cells(notebook):
        source = "".join(cell["source"])
        if len(source.splitlines()) > CODE_LINES:
            wrong.append(f"{_name(cell)} has {len(source.splitlines())} lines, more than {CODE_LINES}")
        wide = max(map(len, source.splitlines()))
        if wide > CODE_COLUMNS:
            wrong.append(f"{_name(cell)} has a line of {wide} columns; a reader would scroll sideways")
        if re.search(r"^\s*(%%writefile|!)", source, re.MULTILINE):
            wrong.append(f"{_name(cell)} uses %%writefile or !, which hide logic and swallow failures")
    for cell in notebook["cells"]:
        if cell["cell_type"] != "markdown":
            continue
        for target in re.findall(r"\]\(([^)#\s]+)[^)]*\)", "".join(cell["source"])):
            if "://" not in target and not (path.parent / target).exists():
                wrong.append(f"{_name(cell)} links to {target}, which is not there")
    number = len(code_cells(notebook))
    if is_lesson(path) and number not in LESSON_CELLS:
        wrong.append(f"{number} code cells; a lesson has {LESSON_CELLS.start} to {LESSON_CELLS.stop - 1}")
    return wrong + _pictures_without_words(notebook)


def _pictures_without_words(notebook: dict) -> list[str]:
    wrong = []
    cells = notebook["cells"]
    for index, cell in enumerate(cells):
        outputs = cell.get("outputs", [])
        if not any("image/png" in output.get("data", {}) for output in outputs):
            continue
        alt = cell["metadata"].get("alt") or any(
            output.get("metadata", {}).get("image/png", {}).get("alt") for output in outputs
        )
        after = cells[index + 1] if index + 1 < len(cells) else {"cell_type": "code"}
        if not alt and after["cell_type"] != "markdown":
            wrong.append(f"{_name(cell)} shows a picture with neither alt text nor a caption below")
    return wrong


def everything_wrong(path: Path) -> list[str]:
    """All that is wrong with one notebook; empty when it is as it should be."""
    notebook = nbformat.read(path, as_version=4)
    return [
        *wrong_form(notebook),
        *wrong_execution(notebook),
        *wrong_output(notebook),
        *wrong_comparison(notebook),
        *wrong_source(path, notebook),
    ]


def tally(path: Path) -> str:
    """One line: how much of a notebook is compared."""
    notebook = nbformat.read(path, as_version=4)
    return f"{path.name}: {len(compared_cells(notebook))} of {len(code_cells(notebook))} code cells compared"
