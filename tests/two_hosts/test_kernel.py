"""A notebook's kernel interrupts, restarts and dies like any driver, and leaves nothing."""

import time

import leftovers
import pytest
from distlab.waiting import wait_until
from running import SCRIPTS

pytestmark = pytest.mark.timeout(120)
HOSTS = '"node1:1,node2:1"'
START = "import os\nfrom distlab import run\n"
WHO = f"print('ok', run({str(SCRIPTS / 'who.py')!r}, hosts={HOSTS}, quiet=True).ok)"
SLEEP = (
    f"run({str(SCRIPTS / 'misbehave.py')!r}, 'hang', '--who', '0', '1', '--at', 'bare', '--deaf', '1', hosts={HOSTS})"
)


def test_a_notebook(notebook, mark):
    assert notebook.run(START + WHO)["stream"] == "ok True\n"
    idle = set(leftovers.marked(mark))

    # Interrupted, a cell ends at once, and of the job nothing is left.
    cell = notebook.start(SLEEP)
    notebook.outputs(cell, "| started", 30)
    assert len(leftovers.marked(mark)) > len(idle)
    started = time.monotonic()
    notebook.manager.interrupt_kernel()
    assert notebook.outputs(cell, "", 10)["error"] == "KeyboardInterrupt"
    assert time.monotonic() - started < 3.0
    wait_until(lambda: set(leftovers.marked(mark)) == idle, 3.0 - (time.monotonic() - started))
    assert set(leftovers.marked(mark)) == idle
    assert not leftovers.listening(idle - {notebook.manager.provisioner.pid})

    # The next run is warm.
    started = time.monotonic()
    assert notebook.run(WHO)["stream"] == "ok True\n"
    assert time.monotonic() - started < 5.0
    assert set(leftovers.marked(mark)) == idle

    # An error shows no frame of the package, and the traceback of the rank once.
    said = notebook.run(SLEEP.replace("'hang'", "'raise'").replace("'--at', 'bare', ", ""))
    assert said["error"] == "RunFailed"
    assert "raised KeyError" in said["shown"] and said["shown"].count("Traceback") == 1
    assert "launch/running.py" not in said["shown"]

    # Killed in the midst of a run, the kernel takes everything with it.
    notebook.outputs(notebook.start(SLEEP), "| started", 30)
    notebook.manager.signal_kernel(9)
    leftovers.assert_nothing_left(mark, 5.0)


def test_a_kernel_that_is_shut_down_takes_its_agents_with_it(notebook, mark):
    assert notebook.run(START + WHO.replace(",node2:1", ""))["stream"] == "ok True\n"
    assert len(leftovers.marked(mark)) > 2
    notebook.manager.shutdown_kernel()
    leftovers.assert_nothing_left(mark, 5.0)
