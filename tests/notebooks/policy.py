"""What a notebook of this course must be, as functions that return what is wrong.

    python policy.py [--fix] [NOTEBOOK ...]

prints what is wrong with these notebooks, or with all, and exits 1 if anything is. `--fix` first mends what
needs no judgement: ids, kernel, metadata that editors leave, output in pieces. What a cell says and what it
printed stay as they are.
"""

import argparse
import hashlib
import json
import os
import re
import sys
from collections.abc import Sequence
from pathlib import Path

import nbformat

ROOT = Path(__file__).resolve().parents[2]
WORKSPACE = ROOT / "workspace"
FORMAT = (4, 5)
METADATA = {
    "kernelspec": {"display_name": "Python 3 (ipykernel)", "language": "python", "name": "python3"},
    "language_info": {"name": "python"},
}
# Tags tell nbval what to compare, alt is read to people who do not see a picture. All else is an editor's.
CELL_METADATA = {"tags", "alt"}
CELL_ID = re.compile(r"[a-zA-Z0-9-_]{1,64}")
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
    return f"cell {cell.get('id')}"


def wrong_form(notebook: dict) -> list[str]:
    """Format, ids, kernel, metadata and pieces of output: all that `mend` mends."""
    wrong = []
    if (notebook["nbformat"], notebook["nbformat_minor"]) < FORMAT:
        wrong.append("the format is older than 4.5")
    ids = [cell.get("id") for cell in notebook["cells"]]
    if len(set(ids)) != len(ids) or not all(cell_id and CELL_ID.fullmatch(cell_id) for cell_id in ids):
        wrong.append("a cell has no id, or two have the same")
    kernel = notebook["metadata"].get("kernelspec", {}).get("name")
    if kernel != "python3":
        wrong.append(f"the kernel is {kernel}, not python3")
    elif notebook["metadata"] != METADATA:
        wrong.append("the notebook has metadata that an editor left")
    for cell in notebook["cells"]:
        if left := set(cell["metadata"]) - CELL_METADATA:
            wrong.append(f"{_name(cell)} has metadata that an editor left: {', '.join(sorted(left))}")
        if len(one_stream(cell.get("outputs", []))) != len(cell.get("outputs", [])):
            wrong.append(f"{_name(cell)} stores a stream in pieces, which differ from run to run")
    return wrong


def one_stream(outputs: Sequence[dict]) -> list[dict]:
    """The same outputs, in which pieces of one stream that follow each other are one.

    How many pieces a stream arrives in depends on timing; what it says does not.
    """
    merged: list[dict] = []
    for output in outputs:
        last = merged[-1] if merged else {}
        streams = output["output_type"] == "stream" == last.get("output_type")
        if streams and last["name"] == output["name"]:
            last["text"] = "".join(last["text"]) + "".join(output["text"])
        else:
            merged.append(type(output)(output))
    return merged


def _new_id(cell: dict, taken: set[str]) -> str:
    # From what the cell says and not by chance, so that mending a notebook twice gives the same file.
    number = 0
    while (made := hashlib.sha256(f"{number} {''.join(cell['source'])}".encode()).hexdigest()[:8]) in taken:
        number += 1
    return made


def mend(notebook: dict) -> None:
    """Put right, in place, all that `wrong_form` finds. An id that is there and its own stays."""
    notebook["nbformat"], notebook["nbformat_minor"] = max((notebook["nbformat"], notebook["nbformat_minor"]), FORMAT)
    notebook["metadata"] = json.loads(json.dumps(METADATA))
    taken: set[str] = set()
    for cell in notebook["cells"]:
        cell_id = cell.get("id") or ""
        if cell_id in taken or not CELL_ID.fullmatch(cell_id):
            cell["id"] = _new_id(cell, taken)
        taken.add(cell["id"])
        cell["metadata"] = {key: value for key, value in cell["metadata"].items() if key in CELL_METADATA}
        if cell["cell_type"] == "code":
            cell["outputs"] = one_stream(cell["outputs"])


def read(path: Path) -> dict:
    """A notebook as it is in its file; nbformat's own reader would mend ids without a word.

    Raises:
        ValueError: the file holds no notebook of format 4.
    """
    try:
        notebook = json.loads(path.read_text())
        if notebook["nbformat"] != FORMAT[0]:
            raise ValueError(f"format {notebook['nbformat']}")
        notebook["cells"], notebook["metadata"]
    except (ValueError, KeyError, TypeError) as error:
        raise ValueError(f"{path} is no notebook of format 4: {error}") from None
    return notebook


def fix(path: Path) -> bool:
    """Mend a notebook's file; True when that changed it.

    Raises:
        ValueError: the file holds no notebook, or one that is still none after mending.
    """
    notebook = read(path)
    mend(notebook)
    mended = nbformat.from_dict(notebook)
    try:
        nbformat.validate(mended)
    except nbformat.ValidationError as error:
        raise ValueError(f"{path} is no valid notebook: {error.message}") from None
    text = nbformat.writes(mended) + "\n"
    if text == path.read_text():
        return False
    half = path.with_suffix(".half")
    half.write_text(text)
    os.replace(half, path)
    return True


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
    """All that is wrong with one notebook; empty when it is as it should be.

    Raises:
        ValueError: the file holds no notebook.
    """
    notebook = read(path)
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


def main(argv: Sequence[str] | None = None) -> int:
    """Say what is wrong with notebooks, after mending them if asked to; 1 when anything is, or was mended."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--fix", action="store_true", help="mend what needs no judgement")
    parser.add_argument("notebooks", nargs="*", type=Path, metavar="NOTEBOOK", help="default: all of the course")
    options = parser.parse_args(argv)
    status = 0
    for path in options.notebooks or notebooks():
        try:
            if options.fix and fix(path):
                print(f"{path}: mended")
                status = 1
            wrong = everything_wrong(path)
        except (ValueError, OSError) as error:
            wrong = [str(error)]
        for sentence in wrong:
            print(f"{path}: {sentence}")
            status = 1
    return status


if __name__ == "__main__":
    sys.exit(main())
