"""`make horovod`: what is missing is built, installed and proved; what is there is left alone."""

import argparse
import os
import subprocess
import sys
import time
from importlib import metadata
from pathlib import Path

from filelock import FileLock

from distlab.horovod_wheel import kept, pins, proof, state
from distlab.horovod_wheel.build import CannotBuild, build, lacking, workplace

NICE = 10
FAILED = 1


def wants_nccl() -> bool:
    """HOROVOD_NCCL=1 or 0; unset, whether this machine shows a GPU.

    Raises:
        SystemExit: it is something else.
    """
    said = os.environ.get("HOROVOD_NCCL", "")
    if said not in ("", "0", "1"):
        sys.exit(f"HOROVOD_NCCL={said!r} is neither 0 nor 1: 1 builds Horovod with NCCL, which takes twice as long")
    if said:
        return said == "1"
    from distlab.hosts.gpus import list_gpus

    return bool(list_gpus())


class Progress:
    """Shows how far a build is, in the terminal and to `distlab doctor`."""

    def __init__(self) -> None:
        self._said = ("", -1)

    def __call__(self, doing: str, percent: int) -> None:
        """Say what is being done, and how much of it is done in per cent, when that is news."""
        state.tell(doing, percent)
        before, step = self._said, 2 if sys.stdout.isatty() else 10
        if doing == before[0] and percent < before[1] + step:
            return
        end = "\r" if sys.stdout.isatty() else "\n"
        print(f"{doing:40}{f'{percent:4} %' if percent else '':6}", end=end, flush=True)
        self._said = (doing, percent)

    def close(self) -> None:
        """End the line that was drawn over and over."""
        if sys.stdout.isatty():
            print()


def make(nccl: bool, progress: Progress) -> Path:
    """The wheel that is wanted, from what is kept or newly built.

    Raises:
        CannotBuild: says why.
    """
    wheel = kept.find(nccl)
    if wheel:
        return wheel
    print(f"Building Horovod {pins.VERSION}{' with NCCL' if nccl else ''} (3 to 10 minutes, once)", flush=True)
    started = time.monotonic()
    with workplace(kept.root()) as folder:
        return kept.keep(build(nccl, folder, progress), nccl, time.monotonic() - started)


def install(wheel: Path, nccl: bool, progress: Progress) -> None:
    """Install a wheel in this environment and prove it.

    Raises:
        CannotBuild: it could not be installed.
        NotProved: it does not do what it should.
    """
    state.proof_file().unlink(missing_ok=True)
    progress("installing Horovod", 0)
    words = ["install", "--quiet", "--no-deps", "--force-reinstall", "--disable-pip-version-check", str(wheel)]
    done = subprocess.run([sys.executable, "-m", "pip", *words], capture_output=True, text=True, check=False)
    if done.returncode:
        raise CannotBuild(f"pip cannot install {wheel.name}: {done.stderr.strip().splitlines()[-1:]}")
    proof.prove(nccl, progress)
    state.keep_proof(kept.facts(wheel) | {"version": metadata.version("horovod")})


def beside() -> None:
    """Start this again in the background, where closing the terminal does not end it."""
    kept.root().mkdir(parents=True, exist_ok=True)
    with (kept.root() / "beside.log").open("w") as log:
        builder = subprocess.Popen(
            [sys.executable, "-m", "distlab.horovod_wheel"],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            cwd=Path(__file__).resolve().parents[2],
            start_new_session=True,
            # Notebooks come first.
            preexec_fn=lambda: os.nice(NICE),
        )
    state.tell("starting to build Horovod", 0, builder.pid)
    print("Horovod, for lesson 04, is built in the background; distlab doctor says when it is ready.")


def main(argv: list[str] | None = None) -> int:
    """Do what the words say; 0 when Horovod is ready (or on its way), else 1."""
    parser = argparse.ArgumentParser(prog="make horovod", description=__doc__)
    parser.add_argument("--beside", action="store_true", help="in the background; return at once")
    parser.add_argument("--wheel-only", action="store_true", help="install nothing; put the wheel where images find it")
    options = parser.parse_args(argv)
    nccl = wants_nccl() or options.wheel_only
    if not options.wheel_only and state.serves(nccl):
        state.forget()
        print(f"{state.current().text} is ready.")
        return 0
    missing = lacking() if kept.find(nccl) is None else None
    if missing:
        return _failed(missing)
    if options.beside:
        beside()
        return 0
    progress = Progress()
    try:
        kept.root().mkdir(parents=True, exist_ok=True)
        # Two environments, or make lab and make test, want it at once: one builds, the other waits.
        with FileLock(kept.root() / "lock"):
            wheel = make(nccl, progress)
            kept.hand_over()
            if not options.wheel_only and not state.serves(nccl):
                install(wheel, nccl, progress)
    except (CannotBuild, proof.NotProved, OSError) as error:
        progress.close()
        return _failed(f"{error} (log: {kept.root() / 'build.log'})" if isinstance(error, CannotBuild) else str(error))
    progress.close()
    state.forget()
    print("Horovod's wheel is ready for the image." if options.wheel_only else f"{state.current().text} is ready.")
    return 0


def _failed(reason: str) -> int:
    state.fail(reason)
    print(f"Horovod, for lesson 04: {reason}. Every other lesson works.", file=sys.stderr)
    return FAILED


if __name__ == "__main__":
    sys.exit(main())
