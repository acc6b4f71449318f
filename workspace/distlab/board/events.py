"""The event file of one rank, as TensorBoard reads it."""

import time
from collections.abc import Sequence
from pathlib import Path

from tensorboard.compat.proto.event_pb2 import Event
from tensorboard.summary.writer.record_writer import RecordWriter

from distlab.errors import DistlabError

# TensorBoard takes files with `tfevents` in their name, and reads those of a folder in order of their names.
NAME = "events.out.tfevents.{}.distlab"
VERSION = "brain.Event:2"


class MirrorError(DistlabError, OSError):
    """The mirror itself cannot be written."""


class EventFile:
    """An event file that is made with its first event and is open only while it is written.

    TensorBoard's own EventFileWriter would keep a file and a thread for each rank of each run.

    Raises:
        MirrorError: all methods, when the file cannot be written or deleted.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.start_over()

    def start_over(self) -> None:
        """Delete what is there, from an earlier mirror in the same folder too, and begin another file."""
        self.delete()
        self._path = self._folder / NAME.format(time.time_ns())

    def append(self, events: Sequence[Event]) -> None:
        """Write events to the end."""
        if not events:
            return
        try:
            self._folder.mkdir(parents=True, exist_ok=True)
            with self._path.open("ab") as file:
                writer = RecordWriter(file)
                if file.tell() == 0:
                    # TensorBoard sorts runs by the time of their first event.
                    writer.write(Event(wall_time=events[0].wall_time, file_version=VERSION).SerializeToString())
                for event in events:
                    writer.write(event.SerializeToString())
        except OSError as error:
            raise self._unwritable(error) from None

    def delete(self) -> None:
        """Delete the rank's event files, and its folder and its run's when nothing else is in them."""
        try:
            for path in self._folder.glob(NAME.format("*")):
                path.unlink(missing_ok=True)
        except OSError as error:
            raise self._unwritable(error) from None
        for folder in (self._folder, self._folder.parent):
            try:
                folder.rmdir()
            except OSError:
                return

    def _unwritable(self, error: OSError) -> MirrorError:
        return MirrorError(error.errno, f"cannot write TensorBoard's files in {self._folder}: {error.strerror}")
