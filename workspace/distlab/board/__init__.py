"""TensorBoard for the runs: what ranks report as JSON lines, mirrored into event files and served.

Ranks know nothing of it: their files are only read. A rank on a host without a shared file system has
its file there, so it has no curve here.
"""

from distlab.board.events import MirrorError
from distlab.board.mirror import Mirror
from distlab.board.server import serve

__all__ = ["Mirror", "MirrorError", "serve"]
