"""What an attendee sees in a browser: the first page runs, is drawn, and opens only with the token."""

import nbformat
import pytest
from browser import PICTURES, Report, is_blank, open_and_run, visit, window
from distlab.classroom.folder import make_copy
from laboratory import DISTLAB, ROOT, starting
from notebook_api import claims_in

pytestmark = pytest.mark.timeout(280)
PAGE = "lab/tree/Start_Here.ipynb"


@pytest.fixture(scope="module")
def lab(tmp_path_factory):
    """Address and token of a JupyterLab on a copy of the workspace, so that nothing in git changes."""
    folder = tmp_path_factory.mktemp("lab")
    copy = folder / "workspace"
    make_copy(ROOT / "workspace", copy)
    with starting(folder / "runs") as start:
        # The tests switch progress bars off; attendees have them.
        started = start(str(DISTLAB), "lab", "--no-browser", PYTHONPATH=str(copy), TQDM_DISABLE="0")
        yield started.wait_for_url()
        started.stop()


@pytest.fixture(scope="module")
def report(lab) -> Report:
    """The first page, run from top to bottom."""
    url, token = lab
    return open_and_run(f"{url}/{PAGE}?token={token}", PICTURES)


def test_every_cell_runs_without_an_error(report):
    assert report.errors == []
    assert report.ran == len(report.cells)


def test_every_claim_of_the_stored_page_holds_here(report):
    stored = nbformat.read(ROOT / "workspace" / "Start_Here.ipynb", as_version=4)
    outputs = [output for cell in stored.cells for output in cell.get("outputs", [])]
    found = claims_in(report.text)
    assert found and all(line.startswith("✓") and line.endswith(": True") for line in found)
    assert found == claims_in("".join(output.get("text", "") for output in outputs))


def test_the_hosts_are_drawn_before_and_after_the_first_cell_runs(report):
    for cells in (report.opened, report.cells):
        assert len(cells[0].images) == 1
        assert all(width > 0 for cell in cells for width in cell.images)


def test_the_pictures_show_something(report):
    assert len(report.pictures) > 2
    assert not [picture.name for picture in report.pictures if is_blank(picture)]


def test_the_page_asks_this_server_only_and_nothing_fails(report):
    assert (report.console, report.failed, report.elsewhere) == ([], [], [])


def test_without_the_token_there_is_a_login_and_no_notebook(lab):
    url, _ = lab
    with window() as page:
        for place in (PAGE, "files/Start_Here.ipynb", "lab", ""):
            visit(page, f"{url}/{place}")
            assert page.url.startswith(f"{url}/login?next="), place
            assert page.get_by_label("Password or token:").is_visible()
            assert page.locator(".jp-Notebook").count() == 0
            assert "You have one machine in front of you" not in page.content()
        assert page.request.get(f"{url}/api/contents/Start_Here.ipynb").status == 403
