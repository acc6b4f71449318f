"""What ranks print: shown at once with host and rank, kept in logs; tracebacks are held for the end."""

import sys
from contextlib import suppress
from pathlib import Path
from typing import TextIO

from distlab.runs import unwritable

# Once one of these starts, the rest of that rank's stderr is about the same failure.
HELD = ("Traceback (most recent call last)", "usage: ", "Fatal Python error")
BAR_COLUMNS = 100


class RankOutput:
    """Prints ranks' lines as they come and keeps one log per rank in the run's folder."""

    def __init__(self, folder: Path, quiet: bool, out: TextIO | None = None) -> None:
        self._folder = folder / "logs"
        self._folder.mkdir(exist_ok=True)
        self._quiet = quiet
        self._out = out
        self._logs: dict[int, TextIO] = {}
        self._held: dict[int, list[str]] = {}
        self._bar = self._full = False
        self.lines: list[tuple[int, str]] = []

    def log_path(self, rank: int) -> Path:
        """The log of one rank."""
        return self._folder / f"rank{rank}.log"

    def _log(self, rank: int, text: str) -> None:
        if self._full:
            return
        try:
            if rank not in self._logs:
                self._logs[rank] = self.log_path(rank).open("w", buffering=1, encoding="utf-8")
            self._logs[rank].write(text + "\n")
        except OSError as error:
            # Raised once only: lines that come while ranks are stopped must not interrupt that.
            self._full = True
            raise unwritable(self._folder.parent, error) from None

    def hear(self, host: str, rank: int, stream: str, text: str) -> None:
        """Take one line from a rank.

        Raises:
            OSError: the run folder cannot be written; says what to do.
        """
        bar = text.endswith("\r")
        text = text.rstrip("\r")
        if not bar:
            self._log(rank, text)
        if stream == "stderr" and (rank in self._held or text.startswith(HELD)):
            self._held.setdefault(rank, []).append(text)
            return
        if not bar:
            self.lines.append((rank, text))
        if bar and not text.strip():
            self._clear()
        elif text:
            if not bar:
                # A line on stdout may overtake its bar's end on stderr; a bar that goes on redraws itself anyway.
                self._clear()
            self._say(f"{host}:{rank} | {text}", bar)

    def _say(self, text: str, bar: bool = False) -> None:
        if self._quiet:
            return
        # A bar redraws its line, and the next text starts a line of its own.
        start = "\r" if bar and self._bar else "\n" if self._bar else ""
        print(start + text, end="" if bar else "\n", file=self._out or sys.stdout, flush=True)
        self._bar = bar

    def _clear(self) -> None:
        # A finished bar's line is wiped, so that the next line takes its place.
        if self._bar and not self._quiet:
            print("\r" + " " * BAR_COLUMNS + "\r", end="", file=self._out or sys.stdout, flush=True)
            self._bar = False

    def tell(self, text: str) -> None:
        """Say something that comes from the launcher itself."""
        self._say(text)

    def held(self, rank: int) -> str:
        """The failure that a rank printed, if any."""
        return "\n".join(self._held.get(rank, []))

    def close(self, release: bool) -> None:
        """Close the logs. With `release`, for a run that went well, print the tracebacks that were held."""
        if release:
            for rank, lines in sorted(self._held.items()):
                for text in lines:
                    self.lines.append((rank, text))
                    self._say(f"rank {rank} | {text}")
        if self._bar and not self._quiet:
            print(file=self._out or sys.stdout, flush=True)
        for log in self._logs.values():
            # A full disk was reported when the line was written.
            with suppress(OSError):
                log.close()
