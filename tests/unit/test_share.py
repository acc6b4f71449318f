"""A rank's share of its host: that memory freed by one step serves the next."""

import resource

import pytest
import start_ranks
import torch
from distlab import process
from distlab.process.share import keep_freed_memory


def step() -> None:
    for size in (1 << 22, 1 << 24):
        torch.ones(size)


def faults() -> int:
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    step()
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before


def count_hungry_steps(how: str) -> int:
    if how == "kept":
        keep_freed_memory()
    if how == "in a rank":
        with process.alone():
            pass
    return sum(faults() > 10 for _ in range(20))


def hungry_steps(how: str, folder) -> int:
    """How many of 20 steps of 80 MiB had to fetch memory from the kernel, in pages of any size."""
    # In a process of its own, since what malloc is told holds for the rest of a process's life.
    (steps,) = start_ranks.run(1, count_hungry_steps, how, folder=folder)
    return steps


def test_memory_that_a_step_frees_serves_the_next(tmp_path):
    # The first steps fetch it, and one more when something small came to lie in between.
    assert hungry_steps("kept", tmp_path) < 10
    assert hungry_steps("given back", tmp_path) > 15


def test_a_rank_keeps_it_from_the_start(tmp_path):
    assert hungry_steps("in a rank", tmp_path) < 10


def test_threads_are_as_before_also_after_an_error():
    before = torch.get_num_threads()
    with pytest.raises(KeyError), process.threads(before + 1):
        assert torch.get_num_threads() == before + 1
        raise KeyError
    assert torch.get_num_threads() == before
