"""From Horovod's release to a wheel, with nothing from the machine but Python's headers and g++."""

import os
import re
import shutil
import subprocess
import sys
import sysconfig
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TextIO

from distlab.errors import DistlabError
from distlab.horovod_wheel import pins

LONGEST_REASON = 300
PERCENT = re.compile(r"\[\s*(\d+)%\]")

Tell = Callable[[str, int], None]


class CannotBuild(DistlabError, RuntimeError):
    """The wheel cannot be built here; says why and what to do."""


def lacking() -> str | None:
    """What is not on this machine that the build cannot do without, in one sentence; None when all is there."""
    if shutil.which(os.environ.get("CXX", "g++")) is None:
        return "there is no g++: sudo apt-get install g++, then make horovod"
    header = Path(sysconfig.get_paths()["include"]) / "Python.h"
    if not header.is_file():
        return f"{header} is not there: sudo apt-get install python3-dev, then make horovod"
    return None


def build(nccl: bool, folder: Path, tell: Tell) -> Path:
    """Build the wheel in `folder`, which must exist.

    Args:
        tell: hears what is done, and how many percent of it.

    Raises:
        CannotBuild: the machine lacks something, or a step failed; folder/build.log has all of it.
    """
    reason = lacking()
    if reason:
        raise CannotBuild(reason)
    with (folder / "build.log").open("w", buffering=1) as log:
        tools, toolkit, nccl_home, out = (folder / name for name in ("tools", "toolkit", "nccl", "out"))
        tell("fetching Horovod and what builds it", 0)
        _pip(log, "install", "--no-deps", "--target", str(tools), *pins.TOOLS)
        _pip(log, "install", "--no-deps", "--target", str(folder / "cuda"), *pins.TOOLKIT)
        environ = {**os.environ, "PYTHONPATH": str(tools)}
        source = _patched(_release(log, folder, environ), folder)
        _lay_toolkit(folder / "cuda" / "nvidia" / "cu13", toolkit)
        _lay_nccl(nccl_home)
        words = ["wheel", "--verbose", "--no-deps", "--no-build-isolation", "--wheel-dir", str(out), str(source)]
        environ = _settings(environ, tools, toolkit, nccl_home if nccl else None)
        for percent in _percent(_lines(log, "compiling Horovod", words, environ)):
            tell("compiling Horovod", percent)
    return next(out.glob("horovod-*.whl"))


def _settings(environ: Mapping[str, str], tools: Path, toolkit: Path, nccl_home: Path | None) -> dict[str, str]:
    # The environment's own bin comes first, for its mpicc.
    path = os.pathsep.join([str(Path(sys.executable).parent), str(tools / "bin"), os.environ.get("PATH", "")])
    gpu = {**pins.SETTINGS_NCCL, "HOROVOD_NCCL_HOME": str(nccl_home)} if nccl_home else {}
    # Settings of whoever calls must not change what a wheel of this name is.
    own = {name: value for name, value in environ.items() if not name.startswith("HOROVOD_")}
    places = {"PATH": path, "CUDA_HOME": str(toolkit), "HOROVOD_CUDA_HOME": str(toolkit)}
    return own | pins.SETTINGS | gpu | places | {"MAKEFLAGS": f"-j{len(os.sched_getaffinity(0))}"}


def _release(log: TextIO, folder: Path, environ: Mapping[str, str]) -> Path:
    """The release as it was published, told by its checksum."""
    wanted = folder / "horovod.txt"
    wanted.write_text(f"horovod=={pins.VERSION} --hash=sha256:{pins.SHA256}\n")
    words = ["--no-deps", "--no-binary", "horovod", "--no-build-isolation", "--require-hashes", "-r", str(wanted)]
    _pip(log, "download", "--dest", str(folder), *words, environ=environ)
    return folder / f"horovod-{pins.VERSION}.tar.gz"


def _patched(release: Path, folder: Path) -> Path:
    shutil.unpack_archive(release, folder)
    source = folder / f"horovod-{pins.VERSION}"
    for patch in pins.PATCHES:
        file = source / patch.file
        text = file.read_text()
        if text.count(patch.old) != 1:
            raise CannotBuild(f"{patch.file} of Horovod {pins.VERSION} is not the one that the changes are for")
        file.write_text(text.replace(patch.old, patch.new))
    return source


def _installed(package: str) -> Path:
    return Path(sysconfig.get_paths()["purelib"]) / "nvidia" / package


def _lay_toolkit(compiler: Path, folder: Path) -> None:
    """A CUDA toolkit as CMake expects it: the compiler's wheels, and links to the libraries that torch brought."""
    shutil.move(compiler, folder)
    torch_has = _installed("cu13")
    for path in torch_has.rglob("*"):
        link = folder / path.relative_to(torch_has)
        if path.is_dir():
            link.mkdir(parents=True, exist_ok=True)
        elif not link.exists():
            link.parent.mkdir(parents=True, exist_ok=True)
            link.symlink_to(path)
    (folder / "lib64").symlink_to("lib")
    (folder / "lib" / "libcudart.so").symlink_to("libcudart.so.13")


def _lay_nccl(folder: Path) -> None:
    own = _installed("nccl")
    (folder / "lib").mkdir(parents=True)
    (folder / "include").symlink_to(own / "include")
    (folder / "lib" / "libnccl.so").symlink_to(own / "lib" / "libnccl.so.2")


def _pip(log: TextIO, *words: str, environ: Mapping[str, str] | None = None) -> None:
    for _ in _lines(log, f"pip {words[0]}", list(words), environ):
        pass


def _lines(log: TextIO, doing: str, words: list[str], environ: Mapping[str, str] | None) -> Iterator[str]:
    """What pip says, line by line, which `log` keeps.

    Raises:
        CannotBuild: pip failed; with the last lines that look like a reason.
    """
    command = [sys.executable, "-m", "pip", "--disable-pip-version-check", "--no-input", *words]
    pip = subprocess.Popen(
        command, env=environ, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace"
    )
    with pip:
        for line in pip.stdout or ():
            log.write(line)
            yield line
    if pip.returncode:
        raise CannotBuild(f"{doing} failed: {_reason(Path(log.name))}")


def _reason(log: Path) -> str:
    lines = [line.strip() for line in log.read_text().splitlines() if line.strip()]
    likely = [line for line in lines if re.search(r"\berror\b|fatal|No space left", line, re.IGNORECASE)]
    return (likely or lines or ["without a word"])[0][:LONGEST_REASON]


def _percent(lines: Iterator[str]) -> Iterator[int]:
    """CMake's own count, whenever it grows."""
    most = 0
    for line in lines:
        found = PERCENT.search(line)
        if found and int(found[1]) > most:
            most = int(found[1])
            yield most


@contextmanager
def workplace(root: Path) -> Iterator[Path]:
    """A folder to build in, beside the finished wheels. It goes when all went well; a failed one keeps only its log."""
    root.mkdir(parents=True, exist_ok=True)
    folder = Path(tempfile.mkdtemp(prefix="building-", dir=root))
    try:
        yield folder
    finally:
        log = folder / "build.log"
        if log.is_file():
            log.replace(root / "build.log")
        shutil.rmtree(folder, ignore_errors=True)
