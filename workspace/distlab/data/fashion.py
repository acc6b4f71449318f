"""Fashion-MNIST: 60,000 + 10,000 grey images of 28 x 28, from whichever source is nearest.

Every source gives the same four idx files, and their content is pinned by SHA-256.
Han Xiao, Kashif Rasul, Roland Vollgraf: Fashion-MNIST, arXiv 1708.07747. Licence: MIT.
"""

import errno
import gzip
import hashlib
import os
import shutil
import subprocess
import zlib
from collections.abc import Callable
from pathlib import Path

import numpy as np

from distlab.data import arrays
from distlab.data.network import CONNECT_SECONDS, offline, short_timeouts
from distlab.data.store import Unavailable

CLASSES = ["T-shirt/top", "Trouser", "Pullover", "Dress", "Coat", "Sandal", "Shirt", "Sneaker", "Bag", "Ankle boot"]
PACKAGE = "dataset-fashion-mnist"
INSTALLED = Path("/usr/share/datasets/fashion-mnist")
SHA256 = {
    "train-images-idx3-ubyte": "c59f468a2f672dc815687fe0f83887768d799fd8a3f3276145d20f83aa44d888",
    "train-labels-idx1-ubyte": "bad3541b69d912435c50bb6ba87bec294ff4f6a2e1246121d8633921760443d9",
    "t10k-images-idx3-ubyte": "5b4141f0afbad91edebe8549f8fcffe087ea10ca49f1dbef5c9a5cd8815ce37b",
    "t10k-labels-idx1-ubyte": "0402a96d92fd2663957122ceb108a494c5af83dab82d92729df917d7dec38c34",
}
UPDATE_SECONDS = 90
DOWNLOAD_SECONDS = 300

Say = Callable[[str], None]


def make(part: Path, root: Path, say: Say) -> dict:
    """Fill a folder from the first source that gives the true files.

    Raises:
        Unavailable: no source did; it names what each of them lacked.
    """
    reasons = ["DISTLAB_OFFLINE forbids the network"] if offline() else []
    for name, fetch in (NEARBY if offline() else NEARBY | NETWORK).items():
        work = part / "work"
        work.mkdir()
        try:
            folder = fetch(work, root, say)
            if folder is None:
                continue
            splits = read_files(folder)
        except Unavailable as error:
            reasons.append(f"{name}: {error}")
        else:
            return arrays.write(part, *splits, CLASSES, source=name)
        finally:
            shutil.rmtree(work)
    raise Unavailable("; ".join(reasons), remember=not offline())


def read_files(folder: Path) -> tuple[arrays.Split, arrays.Split]:
    """Read and check the four files of a folder, packed or not.

    Raises:
        Unavailable: one is missing, damaged or not the true one.
    """
    content = {}
    for name, sha256 in SHA256.items():
        plain, packed = folder / name, folder / f"{name}.gz"
        try:
            data = plain.read_bytes() if plain.exists() else gzip.decompress(packed.read_bytes())
        except FileNotFoundError:
            raise Unavailable(f"{packed} is missing") from None
        except (EOFError, gzip.BadGzipFile, zlib.error) as error:
            raise Unavailable(f"{packed} is damaged ({error})") from None
        if hashlib.sha256(data).hexdigest() != sha256:
            raise Unavailable(f"{name} in {folder} is damaged or another file: its SHA-256 is wrong")
        content[name] = read_idx(data)
    images = {key: content[f"{key}-images-idx3-ubyte"][:, None] for key in ("train", "t10k")}
    labels = {key: content[f"{key}-labels-idx1-ubyte"] for key in ("train", "t10k")}
    return (images["train"], labels["train"]), (images["t10k"], labels["t10k"])


def read_idx(data: bytes) -> np.ndarray:
    """An idx file as an array of uint8: two zero bytes, type 8, number of axes, their lengths, values.

    Raises:
        ValueError: it is something else, or its length is not what its head says.
    """
    axes = data[3] if len(data) > 3 and data[:3] == b"\0\0\x08" else 0
    head = 4 + 4 * axes
    if axes == 0 or len(data) < head:
        raise ValueError("not an idx file of bytes")
    shape = np.frombuffer(data, ">u4", axes, 4).tolist()
    if len(data) - head != np.prod(shape, dtype=np.int64):
        raise ValueError(f"an idx file of {shape} cannot have {len(data) - head} values")
    return np.frombuffer(data, np.uint8, offset=head).reshape(shape)


def from_data_folder(work: Path, root: Path, say: Say) -> Path | None:
    """The layout that torchvision leaves behind, when somebody copied it here."""
    folder = root / "FashionMNIST" / "raw"
    return folder if folder.is_dir() else None


def from_installed_package(work: Path, root: Path, say: Say) -> Path | None:
    """Where the Debian package puts the files, when it is installed."""
    return INSTALLED if INSTALLED.is_dir() else None


def from_apt(work: Path, root: Path, say: Say) -> Path:
    """Fetch and unpack the Debian package without root and without installing it."""
    if not (shutil.which("apt-get") and shutil.which("dpkg-deb")):
        raise Unavailable("no apt-get here")
    say("fetching Fashion-MNIST (31 MB) with apt-get")
    # apt knows the package only after `apt-get update`, which needs root unless it has package lists of its own.
    if not _apt(work, "download", PACKAGE, seconds=DOWNLOAD_SECONDS):
        own = ("-o", f"Dir::State::Lists={work}/lists", "-o", "APT::Update::Error-Mode=any")
        updated = _apt(work, "update", *own, seconds=UPDATE_SECONDS)
        # Not fatal: the package may come from another source than the one that failed.
        reason = "" if updated else _first_error(work / "apt.log")
        if not _apt(work, "download", PACKAGE, *own, seconds=DOWNLOAD_SECONDS):
            raise Unavailable(reason or _first_error(work / "apt.log"))
    # The newest, since a download that was cut off may have left a part of an older one.
    deb = max(work.glob("*.deb"), key=lambda path: path.stat().st_mtime_ns)
    if not _run(work, "dpkg-deb", "-x", deb.name, "unpacked", seconds=60):
        raise Unavailable(_first_error(work / "apt.log"))
    return work / "unpacked" / INSTALLED.relative_to("/")


def from_torchvision(work: Path, root: Path, say: Say) -> Path:
    """torchvision's own download, which also checks checksums."""
    try:
        from torchvision.datasets import FashionMNIST
    except (ImportError, RuntimeError) as error:
        raise Unavailable(f"torchvision cannot be imported ({_first_line(error)})") from None
    say("fetching Fashion-MNIST (31 MB) with torchvision")
    try:
        with short_timeouts():
            FashionMNIST(str(work), download=True)
    except (OSError, RuntimeError, EOFError, zlib.error) as error:
        if getattr(error, "errno", None) in (errno.ENOSPC, errno.EDQUOT):
            raise
        raise Unavailable(" ".join(str(error).split())) from None
    return work / "FashionMNIST" / "raw"


Source = Callable[[Path, Path, Say], Path | None]
NEARBY: dict[str, Source] = {
    "the data folder": from_data_folder,
    f"the Debian package {PACKAGE}": from_installed_package,
}
NETWORK: dict[str, Source] = {
    f"the Debian package {PACKAGE} by apt-get": from_apt,
    "torchvision's download": from_torchvision,
}


def _apt(work: Path, *arguments: str, seconds: float) -> bool:
    (work / "lists" / "partial").mkdir(parents=True, exist_ok=True)
    (work / "cache" / "archives" / "partial").mkdir(parents=True, exist_ok=True)
    options = {
        "Dir::Cache": f"{work}/cache",
        "APT::Sandbox::User": "root",
        "Acquire::Languages": "none",
        "Acquire::Retries": "0",
        "Acquire::http::Timeout": str(CONNECT_SECONDS),
        "Acquire::https::Timeout": str(CONNECT_SECONDS),
    }
    flags = [part for name, value in options.items() for part in ("-o", f"{name}={value}")]
    return _run(work, "apt-get", "-q", *flags, *arguments, seconds=seconds)


def _run(work: Path, *command: str, seconds: float) -> bool:
    # Killed together with its parent, where setpriv exists.
    tie = ["setpriv", "--pdeathsig", "KILL"] if shutil.which("setpriv") else []
    with open(work / "apt.log", "wb") as log:
        try:
            done = subprocess.run(
                [*tie, *command],
                cwd=work,
                env={**os.environ, "LC_ALL": "C"},
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                timeout=seconds,
            )
        except subprocess.TimeoutExpired:
            raise Unavailable(f"{command[0]} was stopped after {seconds:.0f} s") from None
    return done.returncode == 0


def _first_error(log: Path) -> str:
    lines = [line.strip() for line in log.read_text(errors="replace").splitlines() if line.strip()]
    errors = [line.removeprefix("E: ") for line in lines if line.startswith("E: ")]
    return (errors or lines[-1:] or ["no answer"])[0]


def _first_line(error: Exception) -> str:
    return (str(error).splitlines() or [type(error).__name__])[0]
