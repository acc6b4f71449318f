"""What the Docker engine says. Compose builds, starts and removes; everything else is asked here."""

import json
import re
import shutil
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from distlab.classroom.settings import ROOT, ClassroomError

OLDEST_ENGINE = (20, 10)
OLDEST_COMPOSE = (2, 0)
INSTALL_COMPOSE = (
    "sudo apt-get install docker-compose-plugin (Docker's packages), docker-compose-v2 (Ubuntu's) "
    "or docker-compose (Debian's, from 13 on)"
)
ASK_SECONDS = 60
PROJECT_LABEL = "com.docker.compose.project"


@dataclass(frozen=True)
class Container:
    """One container of some compose project, or of none; `ports` are this machine's, by its own."""

    id: str
    project: str
    service: str
    started_from: str
    state: str
    ports: dict[int, int]


def ask(
    *command: str, seconds: float = ASK_SECONDS, env: Mapping[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    """Run a command and keep what it says; a command that is missing or hangs has failed."""
    try:
        return subprocess.run(
            command,
            cwd=ROOT,
            env=env,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=seconds,
            check=False,
            # Ctrl-C must not reach the commands with which we clear up.
            start_new_session=True,
        )
    # PermissionError: a folder of PATH is closed to us, or the file may not be executed.
    except (FileNotFoundError, PermissionError):
        return subprocess.CompletedProcess(command, 127, "", f"{command[0]}: command not found")
    except subprocess.TimeoutExpired:
        return subprocess.CompletedProcess(command, 124, "", f"{command[0]} gave no answer within {seconds:.0f} s")


def last_line(text: str) -> str:
    """The last line that says something."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return lines[-1] if lines else "it said nothing"


def docker(*words: str, seconds: float = ASK_SECONDS) -> str:
    """What a docker command prints.

    Raises:
        ClassroomError: it failed; says what it said.
    """
    done = ask("docker", *words, seconds=seconds)
    if done.returncode:
        raise ClassroomError(f"docker {words[0]} failed", last_line(done.stderr))
    return done.stdout


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(int(number) for number in re.findall(r"[0-9]+", version)[:2])


def engine_version() -> str:
    """The version of the engine that answers.

    Raises:
        ClassroomError: none does, or it is too old; says why and what to do.
    """
    if not shutil.which("docker"):
        raise ClassroomError("Docker is not installed", "see https://docs.docker.com/engine/install")
    done = ask("docker", "version", "--format", "{{.Server.Version}}")
    said = done.stdout.strip()
    if done.returncode or not said:
        why = last_line(done.stderr)
        if "permission denied" in done.stderr:
            raise ClassroomError(
                "you may not use Docker", "sudo usermod -aG docker $USER, then log out and in again (or use sudo)"
            )
        if re.search(r"Cannot connect|if the daemon is running", done.stderr):
            raise ClassroomError("the Docker engine does not run", "sudo systemctl start docker")
        raise ClassroomError(f"the Docker engine does not answer ({why})", "mend that until `docker version` works")
    if _numbers(said) < OLDEST_ENGINE:
        raise ClassroomError(
            f"Docker {said} is too old", "install 20.10 or newer, see https://docs.docker.com/engine/install"
        )
    return said


def compose_version() -> str:
    """The version of Compose, which is a plugin of the docker command.

    Raises:
        ClassroomError: there is none, or it is too old.
    """
    said = ask("docker", "compose", "version", "--format", "json").stdout
    try:
        version = str(json.loads(said)["version"]).removeprefix("v")
    except (ValueError, LookupError, TypeError):
        raise ClassroomError("Docker Compose v2 is not installed", INSTALL_COMPOSE) from None
    if _numbers(version) < OLDEST_COMPOSE:
        raise ClassroomError(f"Docker Compose {version} is too old", INSTALL_COMPOSE)
    return version


def info(field: str) -> str:
    """One field of `docker info`, such as {{json .Runtimes}}.

    Raises:
        ClassroomError: the engine gave no answer.
    """
    return docker("info", "--format", field).strip()


def image_exists(name: str) -> bool:
    """True when the engine has the image."""
    return ask("docker", "image", "inspect", "--format", "{{.Id}}", name).returncode == 0


def containers() -> list[Container]:
    """All containers, also those that stopped.

    Raises:
        ClassroomError: the engine gave no answer.
    """
    fields = (
        "{{.ID}}",
        f'{{{{.Label "{PROJECT_LABEL}"}}}}',
        '{{.Label "com.docker.compose.service"}}',
        f'{{{{.Label "{PROJECT_LABEL}.working_dir"}}}}',
        "{{.State}}",
        "{{.Ports}}",
    )
    found = []
    for line in docker("ps", "-a", "--no-trunc", "--format", "\t".join(fields)).splitlines():
        id, project, service, started_from, state, published = line.split("\t")
        ports = {int(inside): int(here) for here, inside in re.findall(r":([0-9]+)->([0-9]+)/tcp", published)}
        found.append(Container(id, project, service, started_from, state, ports))
    return found


def is_elsewhere(container: Container) -> bool:
    """True when another copy of the repository, one that still exists, started the container."""
    folder = Path(container.started_from or ROOT)
    return folder.resolve() != ROOT and (folder / "docker-compose.yml").exists()


def left_of(project: str) -> list[str]:
    """The containers, networks and volumes that a compose project has.

    Raises:
        ClassroomError: the engine gave no answer.
    """
    chosen = ("--filter", f"label={PROJECT_LABEL}={project}", "--format")
    return [
        *(f"container {name}" for name in docker("ps", "-a", *chosen, "{{.Names}}").split()),
        *(f"network {name}" for name in docker("network", "ls", *chosen, "{{.Name}}").split()),
        *(f"volume {name}" for name in docker("volume", "ls", *chosen, "{{.Name}}").split()),
    ]


def project_names() -> set[str]:
    """Every compose project of which a container, a network or a volume is left.

    Raises:
        ClassroomError: the engine gave no answer.
    """
    words = ("--filter", f"label={PROJECT_LABEL}", "--format", f'{{{{.Label "{PROJECT_LABEL}"}}}}')
    asked = (("ps", "-a"), ("network", "ls"), ("volume", "ls"))
    return {name for kind in asked for name in docker(*kind, *words).split()}
