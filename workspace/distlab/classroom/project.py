"""One compose project: node1 and node2, started until they are healthy, and removed again."""

import os
import subprocess
import time
from collections.abc import Mapping
from dataclasses import dataclass, field

from distlab.classroom import engine
from distlab.classroom.folder import Place
from distlab.classroom.gpus import Gpus
from distlab.classroom.seats import of_project
from distlab.classroom.settings import ROOT, ClassroomError

NODES = ("node1", "node2")
# JupyterLab may take its 60 s, and the health check of the image asks a few times.
HEALTHY_SECONDS = 150
LOOK_SECONDS = 1.0
# Looks in a row at which a container waits for its next start: it does not come up by itself.
RESTARTS = 3
LOG_LINES = "12"
REMOVE_SECONDS = 120
START_SECONDS = 300


@dataclass(frozen=True)
class Project:
    """A compose project by name, with the settings and files that it is started with."""

    name: str
    compose: tuple[str, ...]
    settings: Mapping[str, str] = field(default_factory=dict)
    files: tuple[str, ...] = ("docker-compose.yml",)

    def _command(self, *words: str) -> list[str]:
        chosen = [word for file in self.files for word in ("-f", file)]
        return [*self.compose, "-p", self.name, *chosen, *words]

    def _environment(self) -> dict[str, str]:
        # Compose writes down where it was started from, and asks the shell for that.
        return {**os.environ, **self.settings, "PWD": str(ROOT)}

    def _ask(self, *words: str, seconds: float) -> subprocess.CompletedProcess[str]:
        return engine.ask(*self._command(*words), seconds=seconds, env=self._environment())

    def build(self) -> bool:
        """Build the image, showing how; False when that failed."""
        return subprocess.run(self._command("build"), cwd=ROOT, env=self._environment(), check=False).returncode == 0

    def start(self) -> None:
        """Start both nodes; an image must be there.

        Raises:
            ClassroomError: the engine refused; says what it said.
        """
        done = self._ask("up", "-d", "--no-build", seconds=START_SECONDS)
        if done.returncode:
            raise ClassroomError(f"{self.name} did not start", engine.last_line(done.stderr))

    def wait(self, seconds: float = HEALTHY_SECONDS) -> None:
        """Wait until both nodes are healthy.

        Raises:
            ClassroomError: one is not, or not in time; says the last lines that it printed.
        """
        until, restarts = time.monotonic() + seconds, 0
        while True:
            nodes = {one.service: one for one in engine.containers(self.name)}
            sick = [name for name in NODES if name not in nodes or "(healthy)" not in nodes[name].status]
            if not sick:
                return
            states = {nodes[name].state if name in nodes else "removed" for name in sick}
            restarts = restarts + 1 if "restarting" in states else 0
            lost = states & {"removed", "exited", "dead"} or any("(unhealthy)" in nodes[name].status for name in sick)
            if lost or restarts >= RESTARTS or time.monotonic() > until:
                raise self._unhealthy(sick, nodes)
            time.sleep(LOOK_SECONDS)

    def _unhealthy(self, sick: list[str], nodes: Mapping[str, engine.Container]) -> ClassroomError:
        said = []
        for name in sick:
            container = nodes.get(name)
            said.append(f"{self.name}: {name} is {container.status if container else 'gone'}; it said last:")
            if container:
                log = engine.ask("docker", "logs", "--tail", LOG_LINES, container.id)
                said += [f"    {line}" for line in (log.stdout + log.stderr).splitlines()]
        seat = of_project(self.name)
        again = f", then make down{seat.words} and make up{seat.words}" if seat else ""
        return ClassroomError(
            "\n".join([*said, f"{self.name} did not become healthy"]),
            f"mend what the lines above name{again}",
        )

    def remove(self) -> list[str]:
        """Remove containers, networks and volumes: what is left in spite of that."""
        said = ""
        # The engine does not let go of a network at once.
        for _ in range(3):
            done = self._ask("down", "-v", "--remove-orphans", seconds=REMOVE_SECONDS)
            said = engine.last_line(done.stderr)
            if done.returncode == 0 and not engine.left_of(self.name):
                return []
            time.sleep(LOOK_SECONDS)
        return engine.left_of(self.name) or [said]


def make_project(
    name: str,
    compose: tuple[str, ...],
    place: Place,
    ports: Mapping[str, int],
    gpus: Gpus,
    subnet: str = "",
    **more: str,
) -> Project:
    """The project with everything that was decided for it."""
    files, settings = ["docker-compose.yml"], {name: str(port) for name, port in ports.items()}
    settings |= {
        "WORKSHOP_FOLDER": str(place.folder),
        "WORKSHOP_UID": str(place.uid),
        "WORKSHOP_GID": str(place.gid),
    }
    if subnet:
        files.append("docker-compose.subnet.yml")
        settings["WORKSHOP_SUBNET"] = subnet
    if gpus.node1:
        files.append("docker-compose.gpu.yml")
        settings |= {"NODE1_GPUS": gpus.node1, "NODE2_GPUS": gpus.node2}
    return Project(name, compose, settings | more, tuple(files))


def build(project: Project, image: str) -> str:
    """Build the image: a sentence when that failed and an older one goes on serving.

    Raises:
        ClassroomError: it failed and there is none.
    """
    if project.build():
        return ""
    if engine.image_exists(image):
        return f"the image could not be built anew (see above), so {image} is used as it was built before"
    raise ClassroomError(
        "the image could not be built",
        "the lines above say why; without a network, bring it from another machine: "
        f"docker save {image} | gzip > image.tgz there, docker load -i image.tgz here",
    )
