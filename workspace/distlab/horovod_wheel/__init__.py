"""Horovod for the torch that is installed: built once, proved, and kept outside the repository.

    python -m distlab.horovod_wheel            # build what is missing, install, prove
    python -m distlab.horovod_wheel --beside   # the same in the background; doctor says when it is ready

Horovod's last release, of 2023, does not build against torch of today: `pins` has what it takes.
An image is built with this room and `errors` alone, so nothing here needs another one. And nothing here imports
Horovod; a lesson does, and what proves the wheel does so in processes of its own.
"""

from distlab.horovod_wheel.state import State, current

__all__ = ["State", "current"]
