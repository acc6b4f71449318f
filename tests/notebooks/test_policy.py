"""Every notebook is as a lesson must be, and the policy sees what it is there to see."""

import copy
import json
import subprocess
import sys

import nbformat
import policy
import pytest

NOTEBOOKS = policy.notebooks()


def test_there_are_notebooks():
    assert [path.name for path in NOTEBOOKS if path.name == "Start_Here.ipynb"]
    assert any(policy.is_lesson(path) for path in NOTEBOOKS)


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_notebook_is_as_it_must_be(path):
    assert policy.everything_wrong(path) == []


@pytest.fixture
def good():
    return nbformat.read(next(path for path in NOTEBOOKS if policy.is_lesson(path)), as_version=4)


def test_a_stripped_notebook_is_noticed(good):
    for cell in policy.code_cells(good):
        cell["outputs"] = []
    assert "nbval compares 0 cells" in policy.wrong_comparison(good)[0]


def test_cells_that_are_not_compared_do_not_count(good):
    for cell in policy.code_cells(good):
        cell["metadata"]["tags"] = ["nbval-ignore-output"]
    assert "nbval compares 0 cells" in policy.wrong_comparison(good)[0]


def test_unexecuted_and_reordered_cells_are_noticed(good):
    cells = policy.code_cells(good)
    cells[0]["execution_count"] = None
    assert "not executed in order" in policy.wrong_execution(good)[0]
    cells[0]["execution_count"] = len(cells) + 1
    assert "not executed in order" in policy.wrong_execution(good)[0]


def test_a_stored_error_is_noticed(good):
    cell = policy.code_cells(good)[2]
    cell["outputs"] = [nbformat.v4.new_output("error", ename="E", evalue="", traceback=[])]
    assert policy.wrong_execution(good) == [f"cell {cell['id']} stores an error"]


@pytest.mark.parametrize(
    ("text", "part"),
    [
        ("line\n" * 60, "prints 60 lines"),
        ("x" * 200, "a line of 200 columns"),
        ("see " + "/home" + "/somebody/runs", "a path of one machine"),
    ],
)
def test_unfit_output_is_noticed(good, text, part):
    cell = policy.code_cells(good)[1]
    cell["outputs"] = [nbformat.v4.new_output("stream", name="stdout", text=text)]
    assert part in policy.wrong_output(good)[0]


def test_wrong_kernel_and_ids_are_noticed(good):
    other = copy.deepcopy(good)
    other["metadata"]["kernelspec"]["name"] = "conda-env"
    assert policy.wrong_form(other) == ["the kernel is conda-env, not python3"]
    good["cells"][1]["id"] = good["cells"][0]["id"]
    assert "two have the same" in policy.wrong_form(good)[0]


@pytest.mark.parametrize("source", ["%%writefile a.py\nx = 1", "!torchrun a.py"])
def test_shell_and_writefile_are_noticed(good, source):
    cell = policy.code_cells(good)[0]
    cell["source"] = source
    assert any("%%writefile or !" in fault for fault in policy.wrong_source(NOTEBOOKS[0], good))


def test_a_dead_link_and_a_long_cell_are_noticed(good):
    cell = next(cell for cell in good["cells"] if cell["cell_type"] == "markdown")
    cell["source"] += "\n[next](nowhere.ipynb)"
    policy.code_cells(good)[0]["source"] = "x = 1\n" * 20
    policy.code_cells(good)[1]["source"] = "x" * 120
    wrong = policy.wrong_source(NOTEBOOKS[0], good)
    assert any("links to nowhere.ipynb" in fault for fault in wrong)
    assert any("has 20 lines" in fault for fault in wrong)
    assert any("has a line of 120 columns" in fault for fault in wrong)


def test_a_picture_without_words_is_noticed(good):
    cell = nbformat.v4.new_code_cell("plot()", id="bare")
    cell["outputs"] = [nbformat.v4.new_output("display_data", data={"image/png": "AAAA", "text/plain": "figure"})]
    good["cells"].append(cell)
    assert "cell bare shows a picture" in policy.wrong_source(NOTEBOOKS[0], good)[-1]


@pytest.fixture
def copy_of(tmp_path):
    """Makes a copy of Start_Here as JSON, beside all that it links to, altered as asked."""

    def make(alter):
        for beside in policy.WORKSPACE.iterdir():
            if beside.name != "Start_Here.ipynb":
                (tmp_path / beside.name).symlink_to(beside)
        notebook = json.loads((policy.WORKSPACE / "Start_Here.ipynb").read_text())
        alter(notebook)
        path = tmp_path / "Start_Here.ipynb"
        path.write_text(json.dumps(notebook))
        return path

    return make


def no_id(notebook):
    del notebook["cells"][1]["id"]


def same_id(notebook):
    notebook["cells"][3]["id"] = notebook["cells"][0]["id"]


def bad_id(notebook):
    notebook["cells"][3]["id"] = "two words"


def old_format(notebook):
    notebook["nbformat_minor"] = 4
    for cell in notebook["cells"]:
        del cell["id"]


def other_kernel(notebook):
    notebook["metadata"]["kernelspec"]["name"] = "conda-env"


def widgets(notebook):
    notebook["metadata"]["widgets"] = {"state": {}}


def clocks(notebook):
    cell = next(cell for cell in notebook["cells"] if cell["cell_type"] == "code")
    cell["metadata"] |= {"execution": {"iopub.status.busy": "2026-11-28"}, "scrolled": True}


def pieces(notebook):
    for cell in notebook["cells"]:
        for output in cell.get("outputs", []):
            if output["output_type"] == "stream" and len("".join(output["text"])) > 2:
                text, at = "".join(output["text"]), cell["outputs"].index(output)
                cell["outputs"][at : at + 1] = [output | {"text": text[:2]}, output | {"text": text[2:]}]
                return
    raise LookupError("no cell of Start_Here prints")


MENDABLE = {
    no_id: "a cell has no id",
    same_id: "two have the same",
    bad_id: "a cell has no id",
    old_format: "older than 4.5",
    other_kernel: "the kernel is conda-env",
    widgets: "the notebook has metadata that an editor left",
    clocks: "has metadata that an editor left: execution, scrolled",
    pieces: "stores a stream in pieces",
}


@pytest.mark.parametrize("alter", MENDABLE, ids=lambda alter: alter.__name__)
def test_what_a_machine_can_mend_is_said_and_mended(copy_of, alter, capsys):
    path = copy_of(alter)
    assert policy.main([str(path)]) == 1
    assert MENDABLE[alter] in capsys.readouterr().out
    assert policy.main(["--fix", str(path)]) == 1
    assert capsys.readouterr().out == f"{path}: mended\n"
    assert policy.main([str(path)]) == 0
    # Twice gives the same, and cells say and print what they did.
    text = path.read_text()
    assert policy.main(["--fix", str(path)]) == 0 and path.read_text() == text
    mended, stored = json.loads(text), json.loads((policy.WORKSPACE / "Start_Here.ipynb").read_text())
    for after, before in zip(mended["cells"], stored["cells"], strict=True):
        assert after | {"id": ""} == before | {"id": ""}


def test_mending_leaves_good_notebooks_byte_for_byte(tmp_path):
    for path in NOTEBOOKS:
        copied = tmp_path / path.name
        copied.write_bytes(path.read_bytes())
        assert not policy.fix(copied)


def test_what_no_machine_can_mend_is_said_and_left(copy_of, capsys):
    def alter(notebook):
        cells = policy.code_cells(notebook)
        cells[0]["execution_count"] = None
        cells[1]["source"] = "!ls"
        no_id(notebook)

    path = copy_of(alter)
    assert policy.main(["--fix", str(path)]) == 1
    said = capsys.readouterr().out
    assert "mended" in said and "not executed in order" in said and "%%writefile or !" in said
    assert "no id" not in said
    assert "!ls" in path.read_text()


@pytest.mark.parametrize("text", ["no JSON", "[]", '{"nbformat": 3}', '{"nbformat": 4, "nbformat_minor": 5}'])
def test_a_file_that_is_no_notebook_is_said_and_left(tmp_path, text, capsys):
    path = tmp_path / "x.ipynb"
    path.write_text(text)
    assert policy.main(["--fix", str(path)]) == 1
    assert "is no notebook of format 4" in capsys.readouterr().out
    assert path.read_text() == text


def test_the_command_works_on_the_whole_course():
    ran = subprocess.run([sys.executable, policy.__file__], capture_output=True, text=True, timeout=60)
    assert (ran.returncode, ran.stdout, ran.stderr) == (0, "", "")
