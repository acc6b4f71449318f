"""What a warm rank does: it was forked with the imports done, and now becomes the script."""

import atexit
import io
import multiprocessing
import os
import runpy
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any


def _leave_group() -> None:
    # Peers see a rank's end by its closed connections, but torchrun's elastic agent keeps this process
    # until all ranks of its host have ended.
    import torch.distributed as dist

    if dist.is_initialized():
        with suppress(Exception):
            dist.destroy_process_group()


def _forget_the_fork() -> None:
    # torch read OMP_NUM_THREADS before the fork, and multiprocessing would start a data loader's
    # workers through the server that forked this rank. A fresh process has neither.
    from distlab.process.share import use_own_cores

    use_own_cores()
    multiprocessing.set_start_method(None, force=True)


def run_script(spec: dict[str, Any]) -> None:
    """Run `spec['script']` as `python script args` would, in a forked rank.

    An error is kept for the launcher, which shows the one that matters, and not printed here.
    """
    os.environ.update(spec["env"])
    os.chdir(spec["cwd"])
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(line_buffering=True, errors="backslashreplace")
    sys.argv = [spec["script"], *spec["args"]]
    sys.path.insert(0, str(Path(spec["script"]).parent))
    _forget_the_fork()
    from distlab.process import ending, read_placement

    ending.watch(read_placement().rank)
    status = 0
    try:
        runpy.run_path(spec["script"], run_name="__main__")
    except SystemExit as leave:
        if isinstance(leave.code, str):
            print(leave.code, file=sys.stderr)
        status = leave.code if isinstance(leave.code, int) else int(leave.code is not None)
        ending.left(leave.code)
    except BaseException as error:
        ending.raised(error)
        status = 1
    finally:
        _leave_group()
        # multiprocessing ends with os._exit, which would skip what scripts register.
        atexit._run_exitfuncs()
        sys.stdout.flush()
        sys.stderr.flush()
    if status:
        sys.exit(status)


def run_for_launcher(spec: dict[str, Any]) -> None:
    """As `run_script`, for a rank that an agent forked for a launcher; it writes to files in `spec['logs']`."""
    for number, name in ((1, "stdout"), (2, "stderr")):
        file = os.open(f"{spec['logs']}/{name}.log", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        os.dup2(file, number)
        os.close(file)
    run_script(spec)
