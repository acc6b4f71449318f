"""A notebook's kernel interrupts, restarts and dies like any driver, and leaves nothing."""

import time

import leftovers
import pytest
from jupyter_client.manager import start_new_kernel
from running import SCRIPTS, marked_environment

pytestmark = pytest.mark.timeout(120)
HOSTS = '"node1:1,node2:1"'
START = "import os\nfrom distlab import run\n"
WHO = f"print('ok', run({str(SCRIPTS / 'who.py')!r}, hosts={HOSTS}, quiet=True).ok)"
SLEEP = (
    f"run({str(SCRIPTS / 'misbehave.py')!r}, 'hang', '--who', '0', '1', '--at', 'bare', '--deaf', '1', hosts={HOSTS})"
)


class Notebook:
    """One kernel, and what its cells said."""

    def __init__(self, mark: str) -> None:
        self.manager, self.client = start_new_kernel(kernel_name="python3", env=marked_environment(mark))

    def start(self, code: str) -> str:
        return self.client.execute(code)

    def outputs(self, cell: str, until: str, seconds: float) -> dict:
        """Messages of a cell up to its end, or up to a stream that holds `until`."""
        said = {"stream": "", "error": "", "shown": ""}
        limit = time.monotonic() + seconds
        while True:
            message = self.client.get_iopub_msg(timeout=max(0.1, limit - time.monotonic()))
            if message["parent_header"].get("msg_id") != cell:
                continue
            content = message["content"]
            if message["msg_type"] == "stream":
                said["stream"] += content["text"]
            elif message["msg_type"] == "error":
                said["error"], said["shown"] = content["ename"], "\n".join(content["traceback"])
            ended = message["msg_type"] == "status" and content["execution_state"] == "idle"
            if ended or (until and said["stream"].count(until) >= 2):
                return said

    def run(self, code: str, seconds: float = 60) -> dict:
        return self.outputs(self.start(code), "", seconds)


@pytest.fixture
def notebook(mark):
    one = Notebook(mark)
    yield one
    one.client.stop_channels()
    one.manager.shutdown_kernel(now=True)
    leftovers.assert_nothing_left(mark, 5.0)


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
    leftovers.seconds_until(lambda: set(leftovers.marked(mark)) == idle, 3.0 - (time.monotonic() - started))
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
    assert "launch/run.py" not in said["shown"]

    # Killed in the midst of a run, the kernel takes everything with it.
    notebook.outputs(notebook.start(SLEEP), "| started", 30)
    notebook.manager.signal_kernel(9)
    leftovers.assert_nothing_left(mark, 5.0)


def test_a_kernel_that_is_shut_down_takes_its_agents_with_it(notebook, mark):
    assert notebook.run(START + WHO.replace(",node2:1", ""))["stream"] == "ok True\n"
    assert len(leftovers.marked(mark)) > 2
    notebook.manager.shutdown_kernel()
    leftovers.assert_nothing_left(mark, 5.0)
