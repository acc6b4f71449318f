"""The attendee's view of node1: JupyterLab in a browser, and a notebook that uses every mechanism."""

import mechanisms
import pytest
from browser import PICTURES, open_and_run
from notebook_api import claims_in

pytestmark = pytest.mark.timeout(300)


def test_every_mechanism_in_a_browser_on_node1(project):
    mechanisms.write(project.workspace)
    url = f"{project.url('node1')}/lab/tree/{mechanisms.NAME}?token={project.token('node1')}"
    report = open_and_run(url, PICTURES / "node1", seconds=180)
    assert (report.errors, report.popups) == ([], [])
    assert report.ran == len(report.cells)
    assert len(report.cells) == len(mechanisms.CELLS)
    mechanisms.assert_all_hold(claims_in(report.text))
    # The hosts, drawn, and the bars.
    assert [len(cell.images) for cell in report.cells][:4] == [1, 0, 0, 1]
    assert report.pictures and all(path.stat().st_size > 10_000 for path in report.pictures)
    # Which host one is on is the first thing that the page shows.
    assert "containers on one network" in report.text
