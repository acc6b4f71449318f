"""The instructor's verbs on a real engine: a room of two seats, and the night before it."""

import os
import re
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from containers import ROOT, answer, docker, left_of
from distlab.classroom.folder import LEFT_OUT
from distlab.classroom.project import NODES

pytestmark = pytest.mark.timeout(900)

SEATS = (41, 42)
VERB_SECONDS = 800
FILES = (
    *("Makefile", "Dockerfile", ".dockerignore", "pyproject.toml", "constraints.txt", "README.md"),
    *("docker-compose.yml", "docker-compose.gpu.yml", "docker-compose.subnet.yml"),
)
FOLDERS = ("image", "workspace")


def project(seat: int) -> str:
    return f"distlab-seat{seat}"


class Classroom:
    """A copy of the repository, as an instructor clones it, and its verbs."""

    def __init__(self, root: Path) -> None:
        self.root = root
        for name in FILES:
            shutil.copy(ROOT / name, root)
        for name in FOLDERS:
            shutil.copytree(ROOT / name, root / name, ignore=LEFT_OUT)
        self.env = {name: value for name, value in os.environ.items() if name not in ("SEAT", "SEATS")}

    def command(self, verb: str, *words: str) -> list[str]:
        return ["make", "--no-print-directory", verb, f"PYTHON={sys.executable}", *words]

    def make(self, verb: str, *words: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            self.command(verb, *words),
            cwd=self.root,
            env=self.env,
            capture_output=True,
            text=True,
            timeout=VERB_SECONDS,
            check=False,
        )

    def workspace(self, seat: int) -> Path:
        return self.root / "seats" / str(seat) / "workspace"

    def pages(self) -> dict[tuple[str, str], str]:
        """The URL of each page that `make urls` prints, by its project and name."""
        said = self.make("urls")
        found = re.findall(r"^(\S+)  (node\d(?: TensorBoard)?) +(http\S+)$", said.stdout, re.MULTILINE)
        return {(whose, name): url for whose, name, url in found}


def container(seat: int, node: str) -> str:
    labels = (f"project={project(seat)}", f"service={node}")
    chosen = [word for label in labels for word in ("--filter", f"label=com.docker.compose.{label}")]
    return docker("ps", "-q", *chosen).stdout.strip()


def inside(seat: int, node: str, *words: str) -> str:
    return docker("exec", container(seat, node), *words).stdout


@pytest.fixture(scope="module")
def classroom(engine, tmp_path_factory):
    """A clone whose seats are gone when the tests are done."""
    room = Classroom(tmp_path_factory.mktemp("clone"))
    yield room
    for seat in SEATS:
        room.make("down", f"SEAT={seat}")


@pytest.fixture(scope="module")
def two_seats(classroom):
    """Two seats that were started at once."""
    said = classroom.make("up", f"SEAT={SEATS[0]}-{SEATS[1]}")
    assert said.returncode == 0, said.stdout + said.stderr
    return classroom


def test_each_seat_has_its_pages(two_seats):
    pages = two_seats.pages()
    own = {key: url for key, url in pages.items() if key[0] in map(project, SEATS)}
    assert {name for _, name in own} == {"node1", "node1 TensorBoard", "node2", "node2 TensorBoard"}
    ports = [re.search(r":(\d+)", url)[1] for url in own.values()]
    assert sorted(ports) == sorted(str(base + 10 * seat) for seat in SEATS for base in (8000, 8006, 9000, 9006))


def test_a_seats_token_is_refused_by_the_other(two_seats):
    pages = two_seats.pages()
    tokens = {seat: pages[project(seat), "node1"].partition("token=")[2] for seat in SEATS}
    assert tokens[41] != tokens[42] and min(map(len, tokens.values())) >= 24
    for seat in SEATS:
        for node in NODES:
            base = pages[project(seat), node].partition("/lab")[0]
            asked = {other: answer(f"{base}/api/contents?token={tokens[other]}")[0] for other in SEATS}
            assert asked == {other: 200 if other == seat else 403 for other in SEATS}


def test_seats_have_networks_of_their_own(two_seats):
    addresses = {seat: inside(seat, "node1", "hostname", "-i").strip() for seat in SEATS}
    assert len(set(addresses.values())) == 2
    # Each sees its own other node by name, and not the other seat.
    for seat in SEATS:
        there = inside(seat, "node2", "hostname", "-i").strip()
        assert inside(seat, "node1", "getent", "hosts", "node2").split()[0] == there
    reached = docker("exec", container(41, "node1"), "ping", "-c", "1", "-W", "2", addresses[42], check=False)
    assert reached.returncode != 0


def test_what_a_seat_writes_lands_in_its_own_folder(two_seats):
    for seat in SEATS:
        inside(seat, "node1", "sh", "-c", f"echo {seat} > /workspace/mine.txt")
    for seat in SEATS:
        folder = two_seats.workspace(seat)
        assert (folder / "mine.txt").read_text() == f"{seat}\n"
        assert (folder / "mine.txt").stat().st_uid == folder.stat().st_uid != 0
        assert inside(seat, "node2", "cat", "/workspace/mine.txt") == f"{seat}\n"
    assert not (two_seats.root / "workspace" / "mine.txt").exists()


def test_up_again_changes_nothing(two_seats):
    pages, before = two_seats.pages(), [container(seat, node) for seat in SEATS for node in NODES]
    said = two_seats.make("up", "SEAT=41")
    assert said.returncode == 0 and "seats/41/workspace, as it was left" in said.stdout
    assert pages[project(41), "node1"] in said.stdout
    assert [container(seat, node) for seat in SEATS for node in NODES] == before


def test_another_clone_leaves_them_alone(two_seats, tmp_path):
    other = Classroom(tmp_path)
    said = other.make("up", "SEAT=41")
    assert said.returncode and "distlab-seat41 was started from" in said.stderr
    assert not (tmp_path / "seats").exists()
    assert "distlab-seat42 is left alone" in other.make("down").stdout
    assert all(container(seat, node) for seat in SEATS for node in NODES)


def test_down_leaves_nothing_but_the_work(two_seats):
    said = two_seats.make("down", "SEAT=41")
    assert said.returncode == 0 and "rm -r seats/41" in said.stdout
    assert left_of(project(41)) == [] and container(42, "node1")
    assert (two_seats.workspace(41) / "mine.txt").exists()
    again = two_seats.make("down", "SEAT=41")
    assert (again.returncode, again.stdout) == (0, "nothing of it is here\n")
    assert two_seats.make("down", "SEAT=42").returncode == 0
    assert left_of(project(42)) == []
    gone = two_seats.make("urls", "SEAT=42")
    assert gone.returncode and "nothing of the workshop runs here: start it with make up SEAT=42" in gone.stderr


def test_preflight_proves_it_and_leaves_nothing(classroom):
    said = classroom.make("preflight")
    assert said.returncode == 0, said.stdout + said.stderr
    for node in NODES:
        assert re.search(
            rf"^(fine|note)   from {node} +4 ranks on node1 and node2 trained on", said.stdout, re.MULTILINE
        )
    assert left_of("distlab-preflight") == [] and not (classroom.root / "seats/preflight").exists()


@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupted_preflight_leaves_nothing(classroom, how):
    with subprocess.Popen(
        classroom.command("preflight"),
        cwd=classroom.root,
        env=classroom.env,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    ) as started:
        said = []
        for line in started.stdout:
            said.append(line)
            if "training from node1" in line:
                break
        time.sleep(2)
        # What it said is all that there is to know when it never came that far.
        assert len(left_of("distlab-preflight")) == 4, "".join(said)
        # As the terminal does it: make is told, and so is what it started.
        os.killpg(started.pid, how)
        started.communicate(timeout=120)
        assert started.returncode != 0
    assert left_of("distlab-preflight") == [] and not (classroom.root / "seats/preflight").exists()
