"""What holds for the tests of all lessons."""

import pytest
from running import Runner


@pytest.fixture(autouse=True, scope="module")
def one_thread():
    """Small networks, computed in the test's own process, are quicker on one thread, most of all on a busy machine."""
    import torch

    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


@pytest.fixture(scope="module")
def warm_module(warm_session, tmp_path_factory):
    """Like `warm`, for runs that several tests of a module read."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("DISTLAB_RUNS", str(tmp_path_factory.mktemp("runs")))
        yield Runner(warm_session)
