"""One compose project: node1 and node2, started until they are healthy, and removed again."""

import json
import os
import subprocess
import time
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from distlab.classroom import engine
from distlab.classroom.folder import Place
from distlab.classroom.gpus import Gpus
from distlab.classroom.seats import of_project
from distlab.classroom.settings import ROOT, ClassroomError
from distlab.waiting import wait_until

NODES = ("node1", "node2")
# JupyterLab may take 60 s to start, and the image's health check asks several times after that.
HEALTHY_SECONDS = 150
LOOK_SECONDS = 1.0
# A node that restarts at so many looks in a row does not come up by itself.
RESTARTS = 3
LOST = ("removed", "exited", "dead")
LOG_LINES = "12"
REMOVE_SECONDS = 120
START_SECONDS = 300


@dataclass(frozen=True)
class Node:
    """A node's container: `state` is the engine's word, such as running; `status` is its sentence."""

    name: str
    id: str
    state: str
    health: str
    status: str


GONE = Node("", "", "removed", "", "gone")


def read_nodes(said: str) -> list[Node]:
    """What `docker compose ps --format json` prints: a line for each container, or before 2.21 one list of them."""
    found = []
    for line in filter(str.strip, said.splitlines()):
        rows = json.loads(line)
        for row in rows if isinstance(rows, list) else [rows]:
            # The first versions of Compose 2 print no Status.
            status = row.get("Status") or row["State"]
            found.append(Node(row["Service"], row["ID"], row["State"], row.get("Health", ""), status))
    return found


@dataclass(frozen=True)
class Project:
    """A compose project by name, with the settings and files that it is started with."""

    name: str
    settings: Mapping[str, str] = field(default_factory=dict)
    files: tuple[str, ...] = ("docker-compose.yml",)

    def _command(self, *words: str) -> list[str]:
        chosen = [word for file in self.files for word in ("-f", file)]
        return ["docker", "compose", "-p", self.name, *chosen, *words]

    def _environment(self) -> dict[str, str]:
        # Compose labels containers with PWD, by which `engine.is_elsewhere` tells whose they are.
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

    def nodes(self) -> dict[str, Node]:
        """The nodes that there are, by name, also those that stopped.

        Raises:
            ClassroomError: the engine gave no answer.
        """
        done = self._ask("ps", "-a", "--format", "json", seconds=engine.ASK_SECONDS)
        if done.returncode:
            raise ClassroomError(f"{self.name} cannot be looked at", engine.last_line(done.stderr))
        return {node.name: node for node in read_nodes(done.stdout)}

    def wait(self, seconds: float = HEALTHY_SECONDS) -> None:
        """Wait until both nodes are healthy.

        Raises:
            ClassroomError: one is not, or not in time; says the last lines that it printed.
        """
        nodes: dict[str, Node] = {}
        restarts = 0

        def sick() -> list[str]:
            return [name for name in NODES if name not in nodes or nodes[name].health != "healthy"]

        def decided() -> bool:
            nonlocal nodes, restarts
            nodes = self.nodes()
            found = [nodes.get(name, GONE) for name in sick()]
            restarts = restarts + 1 if any(node.state == "restarting" for node in found) else 0
            lost = any(node.state in LOST or node.health == "unhealthy" for node in found)
            return not found or lost or restarts >= RESTARTS

        wait_until(decided, seconds, every=LOOK_SECONDS)
        if sick():
            raise self._unhealthy([nodes.get(name, replace(GONE, name=name)) for name in sick()])

    def _unhealthy(self, sick: list[Node]) -> ClassroomError:
        said = []
        for node in sick:
            said.append(f"{self.name}: {node.name} is {node.status}; it said last:")
            if node.id:
                log = engine.ask("docker", "logs", "--tail", LOG_LINES, node.id)
                said += [f"    {line}" for line in (log.stdout + log.stderr).splitlines()]
        seat = of_project(self.name)
        again = f", then make down{seat.words} and make up{seat.words}" if seat else ""
        return ClassroomError(
            "\n".join([*said, f"{self.name} did not become healthy"]),
            f"mend what the lines above name{again}",
        )

    def remove(self) -> list[str]:
        """Remove containers, networks and volumes; returns those that could not be removed."""
        said = ""
        # The engine may still hold a network for a moment after its containers are gone.
        for _ in range(3):
            done = self._ask("down", "-v", "--remove-orphans", seconds=REMOVE_SECONDS)
            said = engine.last_line(done.stderr)
            if done.returncode == 0 and not engine.left_of(self.name):
                return []
            time.sleep(LOOK_SECONDS)
        return engine.left_of(self.name) or [said]


def make_project(
    name: str, place: Place, ports: Mapping[str, int], gpus: Gpus, subnet: str = "", **more: str
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
    return Project(name, settings | more, tuple(files))


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
