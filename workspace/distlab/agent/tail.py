"""Follows the log files of ranks and hands on what they write, line by line."""

import threading
import time
from collections.abc import Callable
from pathlib import Path

from distlab.agent.pace import pause


class Tail(threading.Thread):
    """Calls `emit(local_rank, stream, text)` for each whole line, and for each redrawn bar.

    `folder` is elastic's log folder: RUN/attempt_N/LOCAL_RANK/{stdout,stderr}.log below it, for
    `ranks` ranks.
    """

    def __init__(self, folder: Path, ranks: int, emit: Callable[[int, str, str], None]) -> None:
        super().__init__(daemon=True)
        self._folder, self._emit = folder, emit
        self._files: list[Path] = []
        self._expected = 2 * ranks
        self._done = threading.Event()
        self._error: Exception | None = None
        self._seen: dict[Path, tuple[int, bytes]] = {}

    def run(self) -> None:
        """Read until told to end, and then what is left; the thread's own body."""
        try:
            started = time.monotonic()
            while not self._done.wait(pause(time.monotonic() - started)):
                self._read()
            self._read(last=True)
        except Exception as error:
            self._error = error

    def stop(self) -> None:
        """Hand on what is still unread, then end.

        Raises:
            Exception: whatever ended the thread early; ranks' output must not go missing unseen.
        """
        self._done.set()
        self.join()
        if self._error:
            raise self._error

    def _read(self, last: bool = False) -> None:
        # Once all are known no file is looked for: a look takes the cores on which ranks compute.
        if len(self._files) < self._expected:
            self._files = sorted(self._folder.glob("*/attempt_*/*/std*.log"))
        for path in self._files:
            position, rest = self._seen.get(path, (0, b""))
            if path.stat().st_size == position and not last:
                continue
            with path.open("rb") as file:
                file.seek(position)
                fresh = file.read()
            data = rest + fresh
            # A final \r may be a bar's redraw or the first half of \r\n, so it waits for what comes next.
            open_end = b"\r" if data.endswith(b"\r") and not last else b""
            data = data.removesuffix(open_end)
            *whole, rest = data.replace(b"\r\n", b"\n").replace(b"\r", b"\r\n").split(b"\n")
            if last and rest:
                whole, rest = [*whole, rest], b""
            self._seen[path] = (position + len(fresh), rest + open_end)
            for line in whole:
                self._emit(int(path.parent.name), path.stem, line.decode(errors="replace"))
