"""What a forward pass keeps for its backward: the activations of a step, in bytes."""

from collections import deque
from collections.abc import Callable, Iterable

from torch import Tensor
from torch.autograd.graph import saved_tensors_hooks


def storages(tensors: Iterable[Tensor]) -> dict[int, int]:
    """Address -> bytes of the memory behind some tensors."""
    return {one.untyped_storage().data_ptr(): one.untyped_storage().nbytes() for one in tensors}


def size(tensors: Iterable[Tensor]) -> int:
    """Bytes of some tensors; those that share memory count once."""
    return sum(storages(tensors).values())


class _Holder:
    """What the graph keeps instead of a tensor. It dies when the graph lets go of the tensor."""

    def __init__(self, tensor: Tensor, changes: deque) -> None:
        # Detached, since an output that is kept for its own backward would keep the graph that keeps it.
        self.tensor, self.changes = tensor.detach(), changes
        ((self.address, self.bytes),) = storages([tensor]).items()
        changes.append((self.address, self.bytes, 1))

    def __del__(self) -> None:
        # The tensor is still here, so its address belongs to nobody else before this is noted.
        self.changes.append((self.address, self.bytes, -1))


class Alive(saved_tensors_hooks):
    """Bytes that graphs keep for their backward, now and at most; each storage counts once.

        with Alive(model.parameters()) as alive:
            loss = forward()
        alive.now
        loss.backward()
        alive.now, alive.most

    Only what is computed inside counts, and it counts until its graph lets go of it: backward may
    come later, elsewhere, and in parts. Several blocks with the same object add up. Of blocks
    inside one another the innermost counts.

    Args:
        parameters: tensors to leave out. They are there anyway, and must not move to other memory.

    See https://docs.pytorch.org/docs/stable/autograd.html#torch.autograd.graph.saved_tensors_hooks
    """

    def __init__(self, parameters: Iterable[Tensor] = ()) -> None:
        left_out = storages(parameters)
        # Graphs let go in threads of the devices too, and append is the one thing that needs no lock.
        self._changes: deque[tuple[int, int, int]] = deque()
        self._holders: dict[int, int] = {}
        self._now = self._most = 0

        def pack(tensor: Tensor) -> Tensor | _Holder:
            known = tensor.untyped_storage().data_ptr() in left_out
            return tensor if known else _Holder(tensor, self._changes)

        super().__init__(pack, lambda kept: kept.tensor if isinstance(kept, _Holder) else kept)

    def __enter__(self) -> "Alive":
        super().__enter__()
        return self

    @property
    def now(self) -> int:
        """Bytes that are kept at this moment."""
        self._catch_up()
        return self._now

    @property
    def most(self) -> int:
        """Bytes that were kept at the highest moment until now."""
        self._catch_up()
        return self._most

    def _catch_up(self) -> None:
        while self._changes:
            address, size_, change = self._changes.popleft()
            before = self._holders.pop(address, 0)
            if before + change:
                self._holders[address] = before + change
            self._now += size_ * (bool(before + change) - bool(before))
            self._most = max(self._most, self._now)


def kept_bytes(forward: Callable[[], Tensor], parameters: Iterable[Tensor]) -> int:
    """Bytes that a forward pass keeps for backward, parameters left out, each storage once."""
    with Alive(parameters) as alive:
        loss = forward()
    kept = alive.now
    # The graph lives until here.
    del loss
    return kept
