"""What holds for the tests of all lessons."""

import pytest


@pytest.fixture(autouse=True, scope="module")
def one_thread():
    """Small networks, computed in the test's own process, are quicker on one thread, most of all on a busy machine."""
    import torch

    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)
