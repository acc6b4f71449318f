"""The attendee's view of node1: JupyterLab in a browser, the first page, every cell."""

import pytest
from browser import PICTURES, open_and_run
from notebook_api import claims_in

pytestmark = pytest.mark.timeout(300)


def test_start_here_runs_in_a_browser_on_node1(project):
    url = f"{project.url('node1')}/lab/tree/Start_Here.ipynb?token={project.token('node1')}"
    report = open_and_run(url, PICTURES / "node1", seconds=180)
    assert (report.errors, report.popups) == ([], [])
    assert report.ran == len(report.cells)
    assert len(report.cells) > 5
    claims = claims_in(report.text)
    assert claims and all(claim.endswith(": True") for claim in claims)
    assert report.pictures and all(path.stat().st_size > 10_000 for path in report.pictures)
    # Which host one is on is the first thing that the page shows.
    assert "containers on one network" in report.text
