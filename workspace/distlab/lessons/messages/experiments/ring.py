"""A ring all-reduce, message by message: what each rank holds and what it sends in each step.

Rank r begins with 10 to the power r in every place, so that the digits of a sum say whose numbers are in it.
"""

import argparse
import importlib.util
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import torch
import torch.distributed as dist
from torch import Tensor
from torch.distributed import distributed_c10d

from distlab import process, report
from distlab.runs import WORKSPACE

SOLUTION = "solutions/ring.py"


def load_ring(file: str) -> Callable[[Tensor], object]:
    """The function `ring_all_reduce(tensor)` of a file, which sums in place.

    Args:
        file: a path, or one inside the workspace.

    Raises:
        SystemExit: there is no such file or function.
    """
    path = Path(file) if Path(file).is_file() else WORKSPACE / file
    if not path.is_file():
        raise SystemExit(f"no file {file}: name one with ring_all_reduce(tensor) in it, such as {SOLUTION}")
    # Importing the attendee's file must leave no __pycache__ beside it.
    sys.dont_write_bytecode = True
    spec = importlib.util.spec_from_file_location("ring_of_the_lesson", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    if not callable(getattr(module, "ring_all_reduce", None)):
        raise SystemExit(f"{file} has no function ring_all_reduce(tensor)")
    return module.ring_all_reduce


@contextmanager
def seen(note: Callable[[Tensor, int], None]) -> Iterator[None]:
    """Call `note(tensor, peer)` for every message that this rank sends in the meantime."""
    original: Callable[..., dist.Work | None] = distributed_c10d.isend

    def isend(
        tensor: Tensor, dst: int | None = None, *more: object, group_dst: int | None = None, **by_name: object
    ) -> dist.Work | None:
        note(tensor, group_dst if dst is None else dst)
        return original(tensor, dst, *more, group_dst=group_dst, **by_name)

    # send() calls the module's own isend, and P2POp compares what it is given with it.
    distributed_c10d.isend = dist.isend = isend
    try:
        yield
    finally:
        distributed_c10d.isend = dist.isend = original


def main() -> None:
    """Run the experiment on this rank. Reports `step` and `end`."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--file", default=SOLUTION, help="with the function ring_all_reduce(tensor)")
    args = parser.parse_args()
    with process.group() as me:
        ring = load_ring(args.file)
        vector = torch.full((me.world_size,), 10.0**me.rank, dtype=torch.float64, device=me.message_device)
        expected = vector.clone()
        steps = []

        def note(tensor: Tensor, peer: int) -> None:
            place = (tensor.data_ptr() - vector.data_ptr()) // vector.element_size()
            steps.append({"to": peer, "chunk": place, "sent": tensor.tolist(), "held": vector.tolist()})

        with seen(note):
            ring(vector)
        for number, step in enumerate(steps):
            report.log(me, "step", number=number, **step)
        dist.all_reduce(expected)
        report.log(me, "end", held=vector, expected=expected)


if __name__ == "__main__":
    main()
