"""The instructor's verbs against commands that only look like Docker: what they ask for, and what they say."""

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

import pytest
from distlab.classroom.seats import PORTS, STEP
from distlab.ports import free_ports

ROOT = Path(__file__).resolve().parents[2]
PACKAGE = ROOT / "workspace" / "distlab"
# Writes down what it was asked, and answers from files that the test wrote; `up` makes containers appear.
DOCKER = """#!/bin/sh
printf '%s\\n' "docker $*" >>"$FAKE/calls"
answer() {
    [ -f "$FAKE/$1.out" ] && /bin/cat "$FAKE/$1.out"
    [ -f "$FAKE/$1.err" ] && /bin/cat "$FAKE/$1.err" >&2
    [ -f "$FAKE/$1.rc" ] && exit "$(/bin/cat "$FAKE/$1.rc")"
    exit 0
}
case "$*" in
    "compose version --format json") answer compose ;;
    compose*" build") answer build ;;
    compose*" ps -a --format json") [ -f "$FAKE/nodes-$3" ] && /bin/cat "$FAKE/nodes-$3"; answer looked ;;
    compose*" up "*)
        printf '%s\\n' "NODE1_PORT=$NODE1_PORT NODE2_BOARD_PORT=$NODE2_BOARD_PORT UID=$WORKSHOP_UID" \\
            "FOLDER=$WORKSHOP_FOLDER GPUS=$NODE1_GPUS/$NODE2_GPUS SUBNET=$WORKSHOP_SUBNET PWD=$PWD" >>"$FAKE/started"
        for file in "$FAKE"/after-up/*; do [ -f "$file" ] && /bin/cp "$file" "$FAKE"; done
        answer up ;;
    compose*" down "*) /bin/rm -f "$FAKE/names.out" "$FAKE/ps.out" "$FAKE/nodes-$3"; answer down ;;
    version*) answer version ;;
    "info --format {{json .Runtimes}}") answer runtimes ;;
    "info --format {{.DockerRootDir}}") answer root ;;
    "image inspect"*) answer image ;;
    "ps -a --no-trunc"*) answer ps ;;
    *"--filter label=com.docker.compose.project --format"*) answer projects ;;
    *"--filter label=com.docker.compose.project="*) answer names ;;
    logs*) answer logs ;;
    exec*"test -w /workspace") answer writable ;;
    exec*"distlab urls") answer "urls-$2" ;;
    exec*"distlab run"*) [ -f "$FAKE/slow" ] && exec /bin/sleep 60; answer run ;;
    *) echo "unexpected: $*" >&2; exit 9 ;;
esac
"""
NVIDIA_SMI = "#!/bin/sh\nprintf '0, Tesla T4\\n1, Tesla T4\\n2, Tesla T4\\n3, Tesla T4\\n'\n"
RUN = (
    '{"ok": true, "seconds": 3.2, "error": null, "ranks": [{"host": "node1"}, {"host": "node1"}, {"host": "node2"}, '
    '{"host": "node2"}], "metrics": {"0": [{"event": "setup", "device": "cpu", "backend": "gloo"}]}}'
)


class Host:
    """A machine with a copy of the repository, commands that look like Docker, and nothing else on its PATH."""

    def __init__(self, folder: Path) -> None:
        self.root, self.fake, self.commands = folder / "repository", folder / "fake", folder / "bin"
        package = self.root / "workspace" / "distlab"
        for room in ("classroom", "doctor", "hosts"):
            shutil.copytree(PACKAGE / room, package / room, ignore=shutil.ignore_patterns("__pycache__"))
        for file in PACKAGE.glob("*.py"):
            shutil.copy(file, package)
        shutil.copy(ROOT / "docker-compose.yml", self.root)
        self.fake.mkdir()
        self.commands.mkdir()
        self.command("docker", DOCKER)
        self.base = dict(zip(PORTS, free_ports(4), strict=True))
        self.says("version", "24.0.5")
        self.says("compose", '{"version":"v2.20.2"}')
        self.says("runtimes", '{"runc": {"path": "runc"}}')
        self.says("root", str(folder))
        self.says("run", RUN)

    def command(self, name: str, text: str) -> None:
        (self.commands / name).write_text(text)
        (self.commands / name).chmod(0o755)

    def says(self, what: str, out: str = "", err: str = "", rc: int = 0) -> None:
        for end, text in (("out", out), ("err", err), ("rc", str(rc))):
            (self.fake / f"{what}.{end}").write_text(f"{text}\n" if text else "")

    def containers(self, *rows: tuple, up: bool = True) -> None:
        """Rows of project, service, state, status, ports and perhaps the folder that it was started from.

        Args:
            up: they appear with the next `up`, and are not there yet.
        """
        place, lines, nodes = self.fake / "after-up" if up else self.fake, [], defaultdict(list)
        for number, (project, service, state, status, ports, *where) in enumerate(rows, 1):
            folder = str(where[0] if where else self.root)
            lines.append("\t".join([f"id{number}", project, service, folder, state, ports]) + "\n")
            health = status.rpartition("(")[2].rstrip(")") if status.endswith("healthy)") else ""
            row = {"ID": f"id{number}", "Service": service, "State": state, "Status": status, "Health": health}
            nodes[project].append(json.dumps(row) + "\n")
        place.mkdir(exist_ok=True)
        (place / "ps.out").write_text("".join(lines))
        for project, told in nodes.items():
            (place / f"nodes-{project}").write_text("".join(told))

    def healthy(self, *projects: str, up: bool = True) -> list[tuple]:
        """Both nodes of these projects run, and their pages are known: the rows that say so."""
        rows = []
        for project in projects:
            for node in ("node1", "node2"):
                number = len(rows) + 1
                ports = f"127.0.0.1:{8000 + number}->8888/tcp, 127.0.0.1:{6000 + number}->6006/tcp, 22/tcp"
                rows.append((project, node, "running", "Up 3 seconds (healthy)", ports))
                self.says(f"urls-id{number}", f"http://box:{8000 + number}/lab/tree/Start_Here.ipynb?token=t{number}")
        self.containers(*rows, up=up)
        return rows

    def environment(self, seat: int = 0, **settings: str | None) -> dict[str, str]:
        free = {name: str(port - STEP * seat) for name, port in self.base.items()}
        own = {"PATH": str(self.commands), "FAKE": str(self.fake), "PYTHONPATH": "workspace"}
        return {name: value for name, value in (free | own | settings).items() if value is not None}

    def words(self, *words: str) -> list[str]:
        # -S: as on a machine on which nothing was ever installed for Python.
        return [sys.executable, "-S", "-B", "-m", "distlab.classroom", *words]

    def run(self, *words: str, seat: int = 0, **settings: str | None) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            self.words(*words),
            cwd=self.root,
            env=self.environment(seat, **settings),
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )

    def calls(self, part: str = "") -> list[str]:
        """What Docker was asked, in order."""
        file = self.fake / "calls"
        return [line for line in file.read_text().splitlines() if part in line] if file.exists() else []

    def started(self) -> str:
        file = self.fake / "started"
        return file.read_text() if file.exists() else ""


@pytest.fixture
def host(tmp_path) -> Iterator[Host]:
    yield Host(tmp_path)


def refused(host: Host, said: subprocess.CompletedProcess[str]) -> str:
    """The one sentence with which a verb refused, having started nothing."""
    assert said.returncode == 1 and "Traceback" not in said.stderr
    assert not host.calls(" build") and not host.calls(" up ")
    (sentence,) = said.stderr.splitlines()
    return sentence


# -- up --------------------------------------------------------------------------------------------


def test_up_builds_starts_waits_and_prints_pages(host):
    host.healthy("distlab-seat3")
    said = host.run("up", "--seat", "3", seat=3)
    assert said.returncode == 0, said.stderr
    assert said.stdout.splitlines()[0] == "GPUs: none, so everything runs on the CPU"
    assert "distlab-seat3: works in seats/3/workspace, copied now" in said.stdout
    assert said.stdout.splitlines()[-6:] == [
        "distlab-seat3: starting",
        "distlab-seat3: node1 and node2 are up",
        "distlab-seat3  node1              http://box:8001/lab/tree/Start_Here.ipynb?token=t1",
        "distlab-seat3  node1 TensorBoard  http://box:6001",
        "distlab-seat3  node2              http://box:8002/lab/tree/Start_Here.ipynb?token=t2",
        "distlab-seat3  node2 TensorBoard  http://box:6002",
    ]
    project = "docker compose -p distlab-seat3 -f docker-compose.yml"
    words = ("build", "up -d --no-build", "ps -a --format json")
    assert host.calls("compose -p") == [f"{project} {word}" for word in words]
    copy = host.root / "seats/3/workspace"
    owner = copy.stat().st_uid
    assert owner and (copy / "distlab/classroom/up.py").exists()
    assert f"NODE1_PORT={host.base['NODE1_PORT']} NODE2_BOARD_PORT={host.base['NODE2_BOARD_PORT']}" in host.started()
    assert f"UID={owner}\nFOLDER={copy} GPUS=/ SUBNET= PWD={host.root}\n" in host.started()


def test_a_room_is_built_once_and_each_seat_has_its_own(host):
    host.healthy("distlab-seat1", "distlab-seat2")
    said = host.run("up", "--seat", "1-2", WORKSHOP_TOKEN="mine", WORKSHOP_SUBNET="10.123.0.0/24")
    assert said.returncode == 0, said.stderr
    assert len(host.calls(" build")) == 1
    subnet = "-f docker-compose.yml -f docker-compose.subnet.yml"
    assert [call.split(" ", 2)[2] for call in host.calls(" up ")] == [
        f"-p distlab-seat{number} {subnet} up -d --no-build" for number in (1, 2)
    ]
    first, second = (host.base["NODE1_PORT"] + STEP * number for number in (1, 2))
    assert f"NODE1_PORT={first} " in host.started() and f"NODE1_PORT={second} " in host.started()
    assert "SUBNET=10.123.1.0/24" in host.started() and "SUBNET=10.123.2.0/24" in host.started()
    assert "every seat has the same" in said.stdout


def test_gpus_are_used_where_docker_knows_nvidia(host):
    host.healthy("distlab-seat3")
    host.command("nvidia-smi", NVIDIA_SMI)
    said = host.run("up", "--seat", "3", seat=3)
    assert "Docker has no nvidia runtime" in said.stdout and "nvidia-ctk runtime configure" in said.stdout
    assert "gpu.yml" not in host.calls(" up ")[-1] and "GPUS=/ " in host.started()
    host.says("runtimes", '{"runc": {}, "nvidia": {"path": "nvidia-container-runtime"}}')
    said = host.run("up", "--seat", "3", seat=3)
    assert "GPUs: node1 has 0,1, node2 has 2,3 (Tesla T4)" in said.stdout
    assert "-f docker-compose.yml -f docker-compose.gpu.yml up" in host.calls(" up ")[-1]
    assert "GPUS=0,1/2,3" in host.started()
    host.run("up", "--seat", "3", seat=3, NODE1_GPUS="3", NODE2_GPUS="0")
    assert "GPUS=3/0" in host.started()


def test_a_command_that_may_not_be_started_is_none(host):
    host.healthy("distlab-seat3")
    (host.commands / "nvidia-smi").write_text(NVIDIA_SMI)
    said = host.run("up", "--seat", "3", seat=3)
    assert said.returncode == 0 and said.stdout.startswith("GPUs: none")


def test_the_settings_of_env_count_and_the_shells_win(host):
    host.healthy("distlab-seat3")
    port, other = free_ports(2)
    (host.root / ".env").write_text(f"NODE1_PORT={port - 30}\nNODE2_BOARD_PORT={port - 30}\nWORKSHOP_UID=4321\n")
    environment = dict.fromkeys(PORTS) | {"NODE2_BOARD_PORT": str(other - 30)}
    host.run("up", "--seat", "3", seat=3, **environment)
    assert f"NODE1_PORT={port} NODE2_BOARD_PORT={other} UID=4321" in host.started()


DENIED = "permission denied while trying to connect to the Docker daemon socket at unix:///var/run/docker.sock"
DEAD = "Cannot connect to the Docker daemon at unix:///var/run/docker.sock. Is the docker daemon running?"
# As Docker 29 says it.
DEAD_TOO = (
    "failed to connect to the docker API at unix:///x.sock; check if the path is correct and if the daemon is running"
)


@pytest.mark.parametrize(
    ("err", "version", "sentence"),
    [
        (DENIED, "", "you may not use Docker: sudo usermod -aG docker $USER, then log out and in again (or use sudo)"),
        (DEAD, "", "the Docker engine does not run: sudo systemctl start docker"),
        (DEAD_TOO, "", "the Docker engine does not run: sudo systemctl start docker"),
        ("odd", "", "the Docker engine does not answer (odd): mend that until `docker version` works"),
        (
            "",
            "19.03.1",
            "Docker 19.03.1 is too old: install 20.10 or newer, see https://docs.docker.com/engine/install",
        ),
    ],
)
@pytest.mark.parametrize("verb", ["up", "urls", "down"])
def test_an_engine_that_is_not_ready(host, verb, err, version, sentence):
    host.says("version", version, err, rc=1 if err else 0)
    assert refused(host, host.run(verb)) == sentence


def test_no_docker_and_no_compose(host):
    for said in ({"err": "docker: 'compose' is not a docker command.", "rc": 1}, {"out": "podman-compose 1.0"}):
        host.says("compose", **said)
        sentence = refused(host, host.run("up"))
        assert sentence.startswith("Docker Compose v2 is not installed: sudo apt-get install docker-compose-plugin")
    host.says("compose", '{"version": "1.0.17"}')
    assert refused(host, host.run("up")).startswith("Docker Compose 1.0.17 is too old: sudo apt-get install")
    (host.commands / "docker").unlink()
    assert refused(host, host.run("up")) == ("Docker is not installed: see https://docs.docker.com/engine/install")


def test_a_taken_port_stops_all_before_anything_starts(host):
    port = host.base["NODE1_PORT"]
    host.containers(("web", "web", "running", "Up", f"0.0.0.0:{port}->80/tcp, :::{port}->80/tcp"), up=False)
    with socket.create_server(("127.0.0.1", port)):
        sentence = refused(host, host.run("up", "--seat", "2-3", seat=3))
        assert sentence.startswith(f"port {port} (NODE1_PORT of seat 3) is taken by web: take another SEAT, or")
        assert not (host.root / "seats").exists()
        # The same port in our own hands: we are up already.
        host.healthy("distlab-seat3")
        row = ("distlab-seat3", "node1", "running", "Up (healthy)", f"127.0.0.1:{port}->8888/tcp")
        host.containers(row, up=False)
        assert host.run("up", "--seat", "3", seat=3).returncode == 0


def test_another_copy_of_the_repository_is_left_in_peace(host, tmp_path):
    other = tmp_path / "other"
    other.mkdir()
    (other / "docker-compose.yml").write_text("")
    host.containers(("distlab-seat3", "node1", "running", "Up (healthy)", "", other), up=False)
    assert refused(host, host.run("up", "--seat", "3")) == (
        f"distlab-seat3 was started from {other}: take another SEAT, or make down there first"
    )


def test_a_node_that_does_not_come_up_is_named_and_the_others_start(host):
    rows = host.healthy("distlab-seat1", "distlab-seat2")
    rows[1] = ("distlab-seat1", "node2", "exited", "Exited (2) 1 second ago", "")
    host.containers(*rows)
    host.says("logs", "no room\nJupyterLab did not start", "and more")
    said = host.run("up", "--seat", "1-2")
    assert said.returncode == 1
    assert said.stderr.splitlines() == [
        "distlab-seat1: node2 is Exited (2) 1 second ago; it said last:",
        "    no room",
        "    JupyterLab did not start",
        "    and more",
        "distlab-seat1 did not become healthy: "
        "mend what the lines above name, then make down SEAT=1 and make up SEAT=1",
    ]
    assert "distlab-seat2: node1 and node2 are up" in said.stdout
    assert "distlab-seat1  node1" not in said.stdout and "distlab-seat2  node1" in said.stdout


def test_a_node_that_starts_again_and_again(host):
    host.containers(
        ("distlab-seat3", "node1", "restarting", "Restarting (1) 2 seconds ago", ""),
        ("distlab-seat3", "node2", "running", "Up (healthy)", ""),
    )
    began = time.monotonic()
    said = host.run("up", "--seat", "3", seat=3)
    assert said.returncode == 1 and "node1 is Restarting (1)" in said.stderr
    assert time.monotonic() - began < 20


def test_what_the_engine_refuses_is_said(host):
    host.says("up", err="Creating\nError: could not find an available address pool", rc=1)
    said = host.run("up", "--seat", "3", seat=3)
    assert said.returncode == 1
    assert said.stderr == "distlab-seat3 did not start: Error: could not find an available address pool\n"


def test_without_a_network_the_image_that_is_there_serves(host):
    host.healthy("distlab-seat3")
    host.says("build", err="failed to resolve debian", rc=1)
    said = host.run("up", "--seat", "3", seat=3)
    assert said.returncode == 0 and "so distlab is used as it was built before" in said.stdout
    host.says("image", err="No such image", rc=1)
    said = host.run("up", "--seat", "3", seat=3)
    assert said.returncode == 1 and len(host.calls(" up ")) == 1
    assert "docker save distlab | gzip > image.tgz there, docker load -i image.tgz here" in said.stderr


@pytest.mark.parametrize("words", [("up", "--seat", "x"), ("down", "--seat", "0"), ("urls", "--seat", "9-1")])
def test_a_bad_seat(host, words):
    assert refused(host, host.run(*words)).endswith(
        "is no seat: write a number from 1 to 99, such as SEAT=3, or SEAT=1-20"
    )
    assert host.calls("compose") == []


def test_a_clone_is_one_clone_however_one_came_there(host, tmp_path):
    """Compose writes down the folder that the shell calls its own, and by that `up` knows its containers again."""
    host.healthy("distlab-seat3")
    link = tmp_path / "link"
    link.symlink_to(host.root)
    said = subprocess.run(
        host.words("up", "--seat", "3"),
        cwd=link,
        env=host.environment(3, PWD=str(link)),
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert said.returncode == 0 and f"PWD={host.root}\n" in host.started()


# -- urls ------------------------------------------------------------------------------------------


def test_urls_of_all_seats_in_order_and_of_nobody_else(host):
    host.healthy("distlab-seat10", "distlab-test-7", "distlab-seat2", "distlab", up=False)
    said = host.run("urls")
    assert said.returncode == 0
    shown = [line.split()[:2] for line in said.stdout.splitlines() if "TensorBoard" not in line]
    assert shown == [
        [project, node] for project in ("distlab", "distlab-seat2", "distlab-seat10") for node in ("node1", "node2")
    ]
    only = host.run("urls", "--seat", "2")
    assert {line.split()[0] for line in only.stdout.splitlines()} == {"distlab-seat2"}


def test_urls_of_nothing(host):
    said = host.run("urls")
    assert (said.returncode, said.stdout) == (1, "")
    assert said.stderr == "nothing of the workshop runs here: start it with make up\n"
    host.healthy("distlab", up=False)
    said = host.run("urls", "--seat", "4")
    assert (said.returncode, said.stdout) == (1, "")
    assert said.stderr == "nothing of the workshop runs here: start it with make up SEAT=4\n"


def test_a_node_without_a_page(host):
    rows = host.healthy("distlab", up=False)
    host.says("urls-id1", "no JupyterLab of yours runs here: start it with make lab", rc=1)
    host.containers(rows[0], ("distlab", "other", *rows[1][2:]), up=False)
    said = host.run("urls")
    assert said.returncode == 1
    assert said.stdout.splitlines() == [
        "distlab  node1  has no page (no JupyterLab of yours runs here: start it with make lab): docker logs id1",
        "distlab  node2  does not run: make up",
    ]


# -- down ------------------------------------------------------------------------------------------


def test_down_removes_every_seat_with_its_volumes_and_says_where_the_work_is(host):
    host.says("projects", "distlab-seat10\ndistlab\nweb\ndistlab-preflight\ndistlab-seat2")
    (host.root / "seats/2/workspace").mkdir(parents=True)
    said = host.run("down")
    assert said.returncode == 0, said.stderr
    down = "-f docker-compose.yml down -v --remove-orphans"
    assert sorted(host.calls(" down ")) == [
        f"docker compose -p {project} {down}" for project in ("distlab", "distlab-seat10", "distlab-seat2")
    ]
    assert said.stdout.splitlines() == [
        "distlab: removed",
        "distlab-seat2: removed",
        "    seats/2/workspace keeps the work; to delete it: rm -r seats/2",
        "distlab-seat10: removed",
    ]
    assert (host.root / "seats/2/workspace").exists()


def test_down_of_one_seat_and_of_nothing(host):
    host.says("names", "distlab-seat3_backend")
    assert host.run("down", "--seat", "3").stdout == "distlab-seat3: removed\n"
    assert len(host.calls(" down ")) == 1
    again = host.run("down", "--seat", "3")
    assert (again.returncode, again.stdout) == (0, "nothing of it is here\n")
    assert host.run("down").stdout == "nothing of it is here\n"


def test_what_cannot_be_removed_is_said(host):
    host.says("projects", "distlab-seat3")
    host.says("down", err="Error: volume is in use", rc=1)
    said = host.run("down")
    assert said.returncode == 1 and said.stdout == "distlab-seat3: not removed: Error: volume is in use\n"


def test_down_leaves_what_another_copy_started(host, tmp_path):
    other = tmp_path / "other"
    other.mkdir()
    (other / "docker-compose.yml").write_text("")
    host.says("projects", "distlab\ndistlab-seat3\ndistlab-seat4")
    gone = tmp_path / "gone"
    host.containers(
        ("distlab-seat3", "node1", "running", "Up", "", other),
        ("distlab-seat4", "node1", "exited", "Exited", "", gone),
        up=False,
    )
    said = host.run("down")
    assert said.stdout.splitlines() == [
        f"distlab-seat3 is left alone: it was started from {other}",
        "distlab: removed",
        "distlab-seat4: removed",
    ]


# -- preflight -------------------------------------------------------------------------------------


def rows(said: subprocess.CompletedProcess[str]) -> dict[str, str]:
    """The state of each finding by its name."""
    found = {}
    for line in said.stdout.splitlines():
        for state in ("fine", "note", "wrong"):
            if line.startswith(f"{state:5}  "):
                found[line[7:].split("  ")[0]] = state
    return found


def test_preflight_trains_from_both_nodes_and_leaves_nothing(host):
    host.healthy("distlab-preflight")
    said = host.run("preflight")
    assert said.returncode == 0, said.stdout + said.stderr
    assert {"fine"} == set(rows(said).values()) - {"note"}
    assert rows(said)["from node1"] == rows(said)["from node2"] == "fine"
    assert "4 ranks on node1 and node2 trained on cpu (gloo), in 3 s" in said.stdout
    assert said.stdout.endswith("The workshop will run on this machine.\n")
    run = "distlab run ddp --hosts node1:2,node2:2 --json -- --epochs 1 --limit 4000"
    assert host.calls("distlab run") == [f"docker exec id1 {run}", f"docker exec id2 {run}"]
    # Once before, for what a killed one left, and last of all.
    calls = host.calls("compose -p distlab-preflight")
    assert " down " in calls[0] and " down " in calls[-1] and " up " in "".join(calls)
    assert f"NODE1_PORT={host.base['NODE1_PORT']} " not in host.started()
    assert "seats/preflight/workspace" in host.started() and not (host.root / "seats/preflight").exists()


@pytest.mark.parametrize(
    ("run", "complaint"),
    [
        (
            RUN.replace('"ok": true, "seconds": 3.2, "error": null', '"ok": false, "error": "rank 3 died\\nmore"'),
            "rank 3 died",
        ),
        (
            RUN.replace(', {"host": "node2"}]', "]"),
            "ranks ran on node1, node1, node2, not on node1, node1, node2, node2",
        ),
        ("", "distlab: no such host"),
    ],
)
def test_a_run_that_proves_nothing(host, run, complaint):
    host.healthy("distlab-preflight")
    host.says("run", run, "noise\ndistlab: no such host", rc=1)
    said = host.run("preflight")
    assert said.returncode == 1 and rows(said)["from node1"] == rows(said)["from node2"] == "wrong"
    # The table is as wide as a page, and breaks longer lines.
    assert complaint in " ".join(said.stdout.split())
    assert "from node1: docs/troubleshooting.md lists causes" in said.stdout
    assert " down " in host.calls("compose -p")[-1] and not (host.root / "seats/preflight").exists()


def test_gpus_that_ranks_do_not_use(host):
    host.healthy("distlab-preflight")
    host.command("nvidia-smi", NVIDIA_SMI)
    host.says("runtimes", '{"nvidia": {}}')
    said = host.run("preflight")
    assert said.returncode == 0 and rows(said)["from node1"] == "note"
    assert "update the driver" in said.stdout


def test_a_workspace_that_nodes_cannot_write(host):
    host.healthy("distlab-preflight")
    host.says("writable", rc=1)
    said = host.run("preflight")
    assert said.returncode == 1 and rows(said)["node1 writes"] == "wrong"


def test_nodes_that_do_not_come_up(host):
    host.containers(
        ("distlab-preflight", "node1", "exited", "Exited (1)", ""),
        ("distlab-preflight", "node2", "running", "Up (healthy)", ""),
    )
    host.says("logs", "no room")
    said = host.run("preflight")
    assert said.returncode == 1 and rows(said)["nodes"] == "wrong" and "    no room\n" in said.stdout
    assert " down " in host.calls("compose -p")[-1] and not (host.root / "seats/preflight").exists()


def test_what_is_wrong_has_a_remedy(host):
    host.says("image", err="No such image", rc=1)
    host.says("root", "/nowhere")
    said = host.run("preflight", "--no-start", "--seats", "99", WORKSHOP_SHM="64m", WORKSHOP_BIND="192.0.2.1")
    found = rows(said)
    assert said.returncode == 1 and host.calls(" up ") == []
    assert [name for name, state in found.items() if state == "wrong"][:2] == ["ports", "memory"]
    assert (found["disk"], found["shared memory"], found["networks"], found["ranks"]) == (
        "note",
        "wrong",
        "note",
        "note",
    )
    for name, state in found.items():
        assert state == "fine" or f"\n{name}: " in said.stdout, name
    assert f"{sum(state == 'wrong' for state in found.values())} of {len(found)} checks went wrong." in said.stdout


def test_an_engine_that_is_not_there(host):
    host.says("version", err=DEAD, rc=1)
    said = host.run("preflight")
    assert said.returncode == 1
    assert (rows(said)["engine"], rows(said)["ranks"]) == ("wrong", "wrong")
    assert "engine: sudo systemctl start docker" in said.stdout
    assert host.calls("compose") == []


@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_an_interrupted_preflight_leaves_nothing(host, how):
    host.healthy("distlab-preflight")
    (host.fake / "slow").touch()
    started = subprocess.Popen(
        host.words("preflight"), cwd=host.root, env=host.environment(), stdout=subprocess.PIPE, text=True
    )
    try:
        while not host.calls("distlab run"):
            time.sleep(0.05)
            assert started.poll() is None
        os.kill(started.pid, how)
        assert started.wait(30) == 130
    finally:
        started.kill()
        started.wait()
    assert " down " in host.calls("compose -p")[-1] and not (host.root / "seats/preflight").exists()
