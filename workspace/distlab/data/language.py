"""Sequences of bytes to learn from: each byte, and the one that follows."""

from collections.abc import Sequence as Numbers
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.utils.data import Dataset

from distlab.data.batches import Batch
from distlab.data.stdlib import text
from distlab.data.store import DataError

VAL_SHARE = 10


class Sequences(Dataset):
    """A text cut into pieces of `context` bytes: sample i is (bytes (T,), next bytes (T,)), int64."""

    def __init__(self, content: Tensor, context: int, number: int) -> None:
        self.content, self.context, self.number = content, context, number

    def __len__(self) -> int:
        return self.number

    def __getitem__(self, index: int) -> tuple[Tensor, Tensor]:
        piece = self.content[index * self.context : (index + 1) * self.context + 1].long()
        return piece[:-1], piece[1:]

    def __getitems__(self, indices: Numbers[int]) -> Batch:
        starts = torch.tensor(indices)[:, None] * self.context
        pieces = self.content[starts + torch.arange(self.context + 1)].long()
        return Batch(pieces[:, :-1].contiguous(), pieces[:, 1:].contiguous())


@dataclass(frozen=True)
class Text:
    """Sequences to train on and to validate with."""

    train: Sequences
    val: Sequences


def sequences(limit_bytes: int, context: int, multiple: int = 1) -> Text:
    """Text of the Python standard library as sequences, a tenth as much of it for validation.

    Args:
        limit_bytes: bytes to train on, at most.
        context: bytes in a sequence.
        multiple: both parts have a multiple of this many sequences; what is left over is left out.
            A pipeline needs batches of one size.

    Raises:
        DataError: there are not enough bytes for `multiple` sequences.
    """

    def part(content: Tensor, which: str) -> Sequences:
        number = (len(content) - 1) // context // multiple * multiple
        if not number:
            raise DataError(
                f"{len(content):,} bytes of text for {which} are fewer than {multiple} sequences of {context}: "
                "use a larger --limit or a smaller --batch-size"
            )
        return Sequences(content, context, number)

    least = multiple * context + 1
    held_out = text(max(limit_bytes // VAL_SHARE, least), split="val")
    return Text(part(text(limit_bytes), "training"), part(held_out, "validation"))
