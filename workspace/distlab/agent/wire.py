"""Messages between the notebook and a host's agent: one JSON object a line, over a pipe or ssh."""

import json
import threading
from collections.abc import Iterable, Iterator
from typing import IO, Any

_lock = threading.Lock()


def send(stream: IO[str], /, **message: object) -> None:
    """Write one message whole; threads may call it at once."""
    line = json.dumps(message) + "\n"
    with _lock:
        stream.write(line)
        stream.flush()


def receive(stream: Iterable[str]) -> Iterator[dict[str, Any]]:
    """Messages until the other side is gone. Lines that are no message are skipped."""
    for line in stream:
        # A login shell over ssh may print a greeting, and a sender that is killed may leave half a line.
        if line.startswith("{") and line.endswith("\n"):
            try:
                message = json.loads(line)
            except ValueError:
                continue
            yield message
