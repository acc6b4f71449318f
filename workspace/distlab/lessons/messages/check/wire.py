"""Inside a rank of a check: sees each message and collective of the attendee's code, however it is called.

Real messages over the real backend, with two differences that make a race show every time. What
irecv is to fill holds no sensible number until its wait(), and isend sends what it was given even
if that is changed too early, and tells of the change.
"""

import functools
import linecache
import sys
import threading
from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor
from torch.distributed import distributed_c10d

COLLECTIVES = (
    *("all_gather", "all_gather_into_tensor", "all_gather_object", "all_gather_single", "all_reduce"),
    *("all_reduce_coalesced", "all_to_all", "all_to_all_single", "broadcast", "broadcast_object_list"),
    *("gather", "gather_into_tensor", "gather_object", "gather_single", "reduce", "reduce_scatter"),
    *("reduce_scatter_single", "reduce_scatter_tensor", "scatter", "scatter_object_list"),
)


def nowhere(tensor: Tensor) -> float | int:
    """A number that no sum of a check comes near to."""
    return float("nan") if tensor.is_floating_point() else torch.iinfo(tensor.dtype).min // 2


class Message:
    """Stands for the Work that isend and irecv return."""

    def __init__(self, work: dist.Work, done: Callable[[], None], waiting: Callable[[], None]) -> None:
        self._work, self._done, self._waiting = work, done, waiting

    def wait(self, *args: Any, **kwargs: Any) -> bool:
        """As torch's Work.wait; notes that this rank waits, and that it is done."""
        self._waiting()
        answer = self._work.wait(*args, **kwargs)
        self._done()
        return answer

    def __getattr__(self, name: str) -> object:
        return getattr(self._work, name)


class Wire:
    """What goes through torch.distributed during one call of the attendee's code.

    Attributes:
        posted: called with each message (op, peer, elements, dtype, line, code) before it is on its way, and
            with the tensor.
        doing: what this rank waits for, kept up to date for whoever reports a stand-still.
        loose: messages that nobody has waited for, yet.
        changed: messages whose numbers were changed before wait().
        collectives: name and line of each collective.
    """

    def __init__(self, file: str, doing: dict, posted: Callable[[dict, Tensor], None]) -> None:
        self.file, self.doing, self.posted = file, doing, posted
        self._inside = threading.local()
        self.clear()

    def clear(self) -> None:
        """Begin anew, for the next call."""
        # Work that is let go of takes its message with it.
        self._works: list[dist.Work] = []
        self.loose: list[dict] = []
        self.changed: list[dict] = []
        self.collectives: list[dict] = []

    def listen(self) -> None:
        """Take the place of torch's functions, for good. To be called before the attendee's file is imported."""
        self._replace("send", lambda real: lambda tensor, *a, **k: self._blocking(real, "send", tensor, *a, **k))
        self._replace("recv", lambda real: lambda tensor, *a, **k: self._blocking(real, "recv", tensor, *a, **k))
        self._replace("isend", lambda real: lambda tensor, *a, **k: self._isend(real, tensor, *a, **k))
        self._replace("irecv", lambda real: lambda tensor, *a, **k: self._irecv(real, tensor, *a, **k))
        for name in COLLECTIVES:
            if hasattr(distributed_c10d, name):
                self._replace_collective(name)

    def _replace_collective(self, name: str) -> None:
        self._replace(name, lambda real: lambda *a, **k: self._collective(real, name, *a, **k))

    def _replace(self, name: str, around: Callable[[Callable], Callable]) -> None:
        real = getattr(distributed_c10d, name)
        outer = around(real)

        @functools.wraps(real)
        def seen(*args: Any, **kwargs: Any) -> Any:
            # torch's functions call each other; only the attendee's own call counts.
            if getattr(self._inside, "torch", False):
                return real(*args, **kwargs)
            return outer(*args, **kwargs)

        # P2POp compares functions with those of the module in which it is.
        for module in (dist, distributed_c10d):
            setattr(module, name, seen)

    def _inner(self, function: Callable, *args: Any, **kwargs: Any) -> Any:
        self._inside.torch = True
        try:
            return function(*args, **kwargs)
        finally:
            self._inside.torch = False

    def _place(self) -> dict:
        frame = sys._getframe()
        while frame and frame.f_code.co_filename != self.file:
            frame = frame.f_back
        if not frame:
            return {}
        return {"line": frame.f_lineno, "code": linecache.getline(self.file, frame.f_lineno).strip()}

    def _post(self, op: str, tensor: Tensor, names: tuple[str, str], args: tuple, kwargs: dict) -> dict:
        name, in_group = names
        peer = args[0] if args else kwargs.get(name)
        peer = kwargs.get(in_group) if peer is None else peer
        # Some backends end the process for that, without a word.
        n, me = dist.get_world_size(), dist.get_rank()
        if peer is not None and not 0 <= peer < n:
            raise ValueError(f"rank {me} has no neighbour {peer}: ranks go from 0 to {n - 1}, and round again")
        if peer == me:
            raise ValueError(f"rank {me} has a message for itself")
        dtype = str(tensor.dtype).removeprefix("torch.")
        message = {"op": op, "peer": peer, "elements": tensor.numel(), "dtype": dtype, **self._place()}
        self.posted(message, tensor)
        return message

    def _blocking(self, real: Callable, op: str, tensor: Tensor, *args: Any, **kwargs: Any) -> Any:
        names = ("dst", "group_dst") if op == "send" else ("src", "group_src")
        self._begin(self._post(op, tensor, names, args, kwargs))
        answer = self._inner(real, tensor, *args, **kwargs)
        self._end()
        return answer

    def _begin(self, message: dict) -> None:
        self.doing.update(op=message["op"], peer=message["peer"])

    def _end(self) -> None:
        self.doing.update(op=None, peer=None)

    def _isend(self, real: Callable, tensor: Tensor, *args: Any, **kwargs: Any) -> Message:
        message = self._post("isend", tensor, ("dst", "group_dst"), args, kwargs)
        kept = tensor.clone()

        def arrived() -> None:
            # NaN is not equal to itself; whoever sends it has not waited for an irecv.
            if not torch.equal(tensor.nan_to_num(), kept.nan_to_num()):
                self.changed.append(message)

        return self._open(message, self._inner(real, kept, *args, **kwargs), arrived)

    def _irecv(self, real: Callable, tensor: Tensor, *args: Any, **kwargs: Any) -> Message:
        message = self._post("irecv", tensor, ("src", "group_src"), args, kwargs)
        arriving = torch.empty_like(tensor) if tensor.is_contiguous() else tensor
        work = self._inner(real, arriving, *args, **kwargs)
        tensor.fill_(nowhere(tensor))
        return self._open(message, work, lambda: tensor.copy_(arriving))

    def _open(self, message: dict, work: dist.Work, arrived: Callable[[], object]) -> Message:
        self.loose.append(message)
        self._works.append(work)

        def done() -> None:
            self._end()
            still = [other for other in self.loose if other is not message]
            # Only the first wait() counts; later the attendee may do with the tensor as they like.
            if len(still) < len(self.loose):
                self.loose[:] = still
                arrived()

        return Message(work, done, lambda: self._begin(message))

    def _collective(self, real: Callable, name: str, *args: Any, **kwargs: Any) -> Any:
        self.collectives.append({"name": name, **self._place()})
        return self._inner(real, *args, **kwargs)
