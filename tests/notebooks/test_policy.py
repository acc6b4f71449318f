"""Every notebook is as a lesson must be, and the policy sees what it is there to see."""

import copy

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
    assert any("%%writefile or !" in one for one in policy.wrong_source(NOTEBOOKS[0], good))


def test_a_dead_link_and_a_long_cell_are_noticed(good):
    cell = next(cell for cell in good["cells"] if cell["cell_type"] == "markdown")
    cell["source"] += "\n[next](nowhere.ipynb)"
    policy.code_cells(good)[0]["source"] = "x = 1\n" * 20
    policy.code_cells(good)[1]["source"] = "x" * 120
    wrong = policy.wrong_source(NOTEBOOKS[0], good)
    assert any("links to nowhere.ipynb" in one for one in wrong)
    assert any("has 20 lines" in one for one in wrong)
    assert any("has a line of 120 columns" in one for one in wrong)


def test_a_picture_without_words_is_noticed(good):
    cell = nbformat.v4.new_code_cell("plot()", id="bare")
    cell["outputs"] = [nbformat.v4.new_output("display_data", data={"image/png": "AAAA", "text/plain": "figure"})]
    good["cells"].append(cell)
    assert "cell bare shows a picture" in policy.wrong_source(NOTEBOOKS[0], good)[-1]
