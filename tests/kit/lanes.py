"""What runs beside what, when `make test` gives the tests to two processes, and in which order.

Each process takes the next piece of work from one queue. A piece is a file, but all that starts containers,
or looks at a page in a browser, is one piece: those tests share two nodes, and a network that comes or goes
disturbs a browser.
"""

import re

import pytest

DOCKER = re.compile(r"engines/test_(?!apptainer|lab|tensorboard)")
# What asks for Horovod, also by asking whether every lesson can run here. It is built while others are tested.
HOROVOD = re.compile(
    r"(two_hosts|lessons|engines)/.*horovod|horovod\.ipynb::|test_interface\.py|test_launchers\.py|test_browser\.py"
    r"|test_nbval_sees\.py|::test_make_lab"
)
APPTAINER = re.compile(r"engines/test_apptainer")
# What a test that waits for an engine waits for, in the folder that DISTLAB_ENGINES names: see setup/beside.sh.
LOCKS = ((APPTAINER, "apptainer.lock"), (re.compile(r"(?!.*/test_browser)" + DOCKER.pattern), "docker.lock"))
# The first pattern that a test matches says how early it runs; within one place the order stays. Containers
# are the longest piece and begin as soon as Horovod and the image may be there.
ORDER = (
    re.compile(r"unit/"),
    re.compile(r"engines/test_compose_files"),
    re.compile(r"engines/test_browser"),
    DOCKER,
    re.compile(r"\.ipynb::(?<!/04_horovod\.ipynb::)"),
    re.compile(r"engines/test_(tensorboard|lab)"),
    re.compile(r"(two_hosts|lessons)/(?!.*(horovod|test_interface|test_launchers))"),
    APPTAINER,
)


def piece(nodeid: str) -> str:
    """The name of the piece of work that a test belongs to."""
    file, _, test = nodeid.partition("::")
    if file.endswith("test_mistakes.py"):
        # One for each exercise, since that of Horovod is late and the others need not be.
        return file + test.partition("[")[2].partition("-")[0]
    return "docker" if DOCKER.search(nodeid) else file


def lock(nodeid: str) -> str | None:
    """The name of the lock that is free when a test's engine is ready; None where it needs none."""
    return next((name for pattern, name in LOCKS if pattern.search(nodeid)), None)


def place(nodeid: str) -> int:
    """How early a test runs: a number, the lower the earlier."""
    return next((number for number, pattern in enumerate(ORDER) if pattern.search(nodeid)), len(ORDER))


def scheduler(config: pytest.Config, log: object = None) -> object:
    """What gives whole pieces of work, in the order of the tests, to whichever process is free."""
    # Here, since one process alone does without xdist.
    from xdist.scheduler import LoadScopeScheduling

    class ByPiece(LoadScopeScheduling):
        def _split_scope(self, nodeid: str) -> str:
            return piece(nodeid)

    config.option.loadscopereorder = False
    return ByPiece(config, log)
