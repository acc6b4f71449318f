"""Loads the data that the options name."""

import argparse

from distlab import data, report
from distlab.process import Rank


def load(args: argparse.Namespace, me: Rank) -> data.Images:
    """Load the images that the options name, say what they are, and report it.

    Raises:
        SettingError: there are more ranks than training samples.
        DataError and others: as `data.load` does.
    """
    images = data.load(args.data, root=args.data_root, limit=args.limit, me=me, on_damaged=args.on_damaged)
    data.require_samples(len(images.train), me.world_size)
    if images.note:
        me.print(images.note)
    report.log(
        me,
        "data",
        data=images.name,
        train=len(images.train),
        val=len(images.val),
        classes=len(images.classes),
        channels=images.channels,
        height=images.height,
        width=images.width,
        note=images.note,
    )
    return images


def load_text(args: argparse.Namespace, me: Rank, readers: int = 1) -> data.Text:
    """Load text in sequences, say how many, and report it.

    Args:
        readers: ranks that read different parts of it. Each part is a multiple of the batch size.

    Raises:
        DataError: there is not enough text for one batch of each.
    """
    text = data.sequences(args.limit, args.context, multiple=readers * args.batch_size)
    me.print(f"Python's own sources: {len(text.train):,} sequences of {args.context} bytes")
    report.log(me, "data", data="stdlib", train=len(text.train), val=len(text.val), context=args.context)
    return text
