"""What a forward pass keeps for its backward: the activations of a step, in bytes."""

from collections import deque
from collections.abc import Callable, Iterable

from torch import Tensor
from torch.autograd.graph import saved_tensors_hooks


def storages(tensors: Iterable[Tensor]) -> dict[int, int]:
    """Address -> bytes of the memory behind some tensors."""
    return {tensor.untyped_storage().data_ptr(): tensor.untyped_storage().nbytes() for tensor in tensors}


def size(tensors: Iterable[Tensor]) -> int:
    """Bytes of some tensors; those that share memory count once."""
    return sum(storages(tensors).values())


class _Holder:
    """The graph keeps this instead of a tensor; it is collected when the graph frees the tensor."""

    def __init__(self, tensor: Tensor, changes: deque) -> None:
        # Detached, since an output kept for its own backward would form a reference cycle with its graph.
        self.tensor, self.changes = tensor.detach(), changes
        ((self.address, self.bytes),) = storages([tensor]).items()
        changes.append((self.address, self.bytes, 1))

    def __del__(self) -> None:
        # Recorded while the tensor still exists, so that no other can have its address.
        self.changes.append((self.address, self.bytes, -1))


class Alive(saved_tensors_hooks):
    """Bytes that graphs keep for their backward, now and at most; each storage counts once.

        with Alive(model.parameters()) as alive:
            loss = forward()
        alive.now
        loss.backward()
        alive.now, alive.most

    Only what is computed inside counts, and it counts until its graph frees it: backward may
    come later, in another thread, and in parts. Several blocks with one object add up. Of nested
    blocks the innermost counts.

    Args:
        parameters: tensors to leave out. They are in memory anyway, and must not move.

    See https://docs.pytorch.org/docs/stable/autograd.html#torch.autograd.graph.saved_tensors_hooks
    """

    def __init__(self, parameters: Iterable[Tensor] = ()) -> None:
        left_out = storages(parameters)
        # Device threads free tensors as well, and deque.append is atomic.
        self._changes: deque[tuple[int, int, int]] = deque()
        self._holders: dict[int, int] = {}
        self._now = self._most = 0

        def pack(tensor: Tensor) -> Tensor | _Holder:
            known = tensor.untyped_storage().data_ptr() in left_out
            return tensor if known else _Holder(tensor, self._changes)

        super().__init__(pack, lambda kept: kept.tensor if isinstance(kept, _Holder) else kept)

    def __enter__(self) -> "Alive":  # type: ignore[override]  # torch's own returns None
        super().__enter__()
        return self

    @property
    def now(self) -> int:
        """Bytes that are kept at this moment."""
        self._catch_up()
        return self._now

    @property
    def most(self) -> int:
        """The peak of `now` so far."""
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
    # Before this, the graph would be gone.
    del loss
    return kept
