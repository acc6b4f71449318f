"""Which numbers of a record become curves, and where on the x axis."""

import json
from collections.abc import Iterator
from typing import Any

from tensorboard.compat.proto.event_pb2 import Event
from tensorboard.compat.proto.summary_pb2 import Summary

from distlab.report import OWN_KEYS

STEPS = ("step", "epoch")
# Only in an `end` record do these say how far training came; elsewhere they may be options.
STEPS_AT_END = ("epochs", "steps")


def _numbers(tag: str, value: object) -> Iterator[Summary.Value]:
    if isinstance(value, dict):
        for name, part in value.items():
            yield from _numbers(f"{tag}/{name}", part)
    # Exact types, because isinstance takes True and False for numbers.
    elif type(value) is int or type(value) is float:
        yield Summary.Value(tag=tag, simple_value=float(value))


def _event(record: dict[str, Any]) -> Event | None:
    name = record["event"]
    if not isinstance(name, str):
        raise TypeError("an event has a name")
    keys = STEPS_AT_END if name == "end" else STEPS
    key = next((key for key in keys if type(record.get(key)) is int), None)
    if key is None:
        return None
    values = {other: value for other, value in record.items() if other not in OWN_KEYS and other != key}
    numbers = list(_numbers(name, values))
    # float() refuses None, which Event would take for the year 1970.
    time = float(record["time"])
    return Event(wall_time=time, step=record[key], summary=Summary(value=numbers)) if numbers else None


def event_of(line: bytes) -> Event | None:
    """TensorBoard's event for one line of a rank's file, or None if the record has no curve.

    A curve needs a step: `step` or else `epoch`, in the `end` record `epochs` or else `steps`. Every other
    number of the record gets a tag like `epoch/loss`.

    Raises:
        ValueError: the line is no record.
    """
    try:
        return _event(json.loads(line))
    except (ArithmeticError, AttributeError, LookupError, RecursionError, TypeError, ValueError) as error:
        # A broken line can be anything: text, a list, a number too large for a float.
        raise ValueError(f"no record: {line[:60].decode(errors='replace').rstrip()!r}") from error
