"""An image built by the real Apptainer, and an ordinary user who runs it, as on a cluster."""

import json
import os
import pwd
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil
from containers import ROOT
from until import wait_until

# Debian has this user without anybody's help. Root could write everywhere, and JupyterLab refuses it.
ORDINARY = "www-data"
BUILD_SECONDS = 1500
# Apptainer's own choice, gzip, takes more than five times as long.
FAST = ("--mksquashfs-args", "-comp lz4")


def engine() -> str | None:
    """The command `apptainer`, if there is one by now."""
    return shutil.which("apptainer") or shutil.which("singularity")


def last_stage(definition: str) -> str:
    """A definition file's last stage as a file of its own, for a base that has what `%files from python` brings."""
    header, body = definition.rpartition("Bootstrap:")[1:]
    return re.sub(r"^%files from python\n(?: +\S+\n)+", "", header + body, flags=re.MULTILINE)


def build(sif: Path) -> None:
    """Build the image by the documented command.

    Where no registry can be reached, from a tree of Debian 12 that DISTLAB_TREE names. Or only its last stage,
    from the tree that DISTLAB_INSTALLED names: Docker's stage `installed`, whose base, files and scripts are
    those of the stage `python` here, as test_apptainer.py sees to.
    """
    tree, definition = os.environ.get("DISTLAB_TREE"), ROOT / "Singularity"
    with tempfile.TemporaryDirectory(prefix="distlab-definition-") as folder:
        if installed := os.environ.get("DISTLAB_INSTALLED"):
            tree, definition = installed, Path(folder) / "Singularity"
            definition.write_text(last_stage((ROOT / "Singularity").read_text()))
        base = ["--build-arg", "BOOTSTRAP=localimage", "--build-arg", f"BASE={tree}"] if tree else []
        words = [engine(), "build", "--force", "--fakeroot", *FAST, *base, str(sif), str(definition)]
        done = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, timeout=BUILD_SECONDS)
    assert done.returncode == 0, f"{done.stdout[-3000:]}\n{done.stderr[-3000:]}"


def _wait_for_port(port: int, seconds: float = 30) -> None:
    # Jupyter prints its address before it listens there.
    def listens() -> bool:
        with socket.socket() as asked:
            return asked.connect_ex(("127.0.0.1", port)) == 0

    wait_until(listens, seconds, lambda: f"nobody listens on port {port}")


class Cluster:
    """One machine of a cluster: the image file, and a user with a home."""

    def __init__(self, folder: Path) -> None:
        root = os.geteuid() == 0
        self.user = pwd.getpwnam(ORDINARY) if root else pwd.getpwuid(os.geteuid())
        self._become = {"user": self.user.pw_uid, "group": self.user.pw_gid, "extra_groups": []} if root else {}
        # The folder of tests is its maker's only.
        folder.chmod(0o755)
        self.home = folder / "home"
        self.home.mkdir()
        self.give(self.home)
        self.workspace = self.home / "workshop" / "workspace"
        # An image that is there already saves whoever works on these tests the time to build it.
        self.sif = Path(os.environ.get("DISTLAB_SIF") or folder / "workshop.sif")

    def give(self, folder: Path) -> None:
        """Make the user the owner of a folder and of what is in it."""
        for path in (folder, *folder.rglob("*")):
            os.chown(path, self.user.pw_uid, self.user.pw_gid)

    def build(self) -> None:
        """Build the image, unless it is there already."""
        if not self.sif.exists():
            build(self.sif)

    def _settings(self, env: dict[str, str]) -> dict:
        # HOME of the passwd file is what Apptainer would take; APPTAINER_HOME is its `--home`.
        own = {"PATH": os.environ["PATH"], "HOME": str(self.home), "APPTAINER_HOME": str(self.home)}
        own |= {"TQDM_DISABLE": "1"}
        return {"cwd": self.home, "env": own | env, "text": True, **self._become}

    def apptainer(
        self, *words: object, check: bool = True, timeout: float = 200, **env: str
    ) -> subprocess.CompletedProcess:
        """Call Apptainer as the user; what it said is in the error when it fails."""
        command = [engine(), "--quiet", *map(str, words)]
        done = subprocess.run(command, capture_output=True, timeout=timeout, **self._settings(env))
        assert not check or done.returncode == 0, f"{' '.join(command)}: {done.stdout}{done.stderr}"
        return done

    def inside(self, shell: str, *options: object, **env: str) -> str:
        """What a shell in the image prints."""
        return self.apptainer("exec", *options, self.sif, "sh", "-c", shell, **env).stdout.strip()

    def train(self, *options: object) -> dict:
        """`distlab run ddp` on four ranks: the JSON line that it ends with."""
        words = ("run", "ddp", "--json", "--", "--epochs", "1", "--limit", "4000")
        said = self.apptainer("run", *options, self.sif, "distlab", *words).stdout
        return json.loads(said.splitlines()[-1])

    @contextmanager
    def lab(self, *words: object, **env: str) -> Iterator[tuple[str, str, str]]:
        """A started command that ends in JupyterLab: address, token, and all that it said until then."""
        command = [engine(), "--quiet", *map(str, words)]
        pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "start_new_session": True}
        process = subprocess.Popen(command, **pipes, **self._settings(env))
        try:
            said = ""
            for line in process.stdout:
                said += line
                if found := re.search(r"(http://127[\d.]+:\d+)/lab\S*\?token=(\S+)", line):
                    break
            assert found, said
            _wait_for_port(int(found[1].rpartition(":")[2]))
            children = psutil.Process(process.pid).children(recursive=True)
            yield found[1], found[2], said
            os.killpg(process.pid, signal.SIGINT)
            process.wait(timeout=30)
            # What had mounted the image ends a moment later.
            left = psutil.wait_procs(children, timeout=30)[1]
            stayed = [child.as_dict(["pid", "status", "cmdline"]) for child in left if child.is_running()]
            assert not left, f"JupyterLab was stopped and left {stayed or left}"
        finally:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()
            process.stdout.close()


if __name__ == "__main__":
    build(Path(sys.argv[1]).absolute())
