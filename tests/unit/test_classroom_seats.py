"""Seats, their ports and networks, and the settings that they come from."""

import re
import socket
from pathlib import Path

import pytest
from distlab.classroom import ports, seats, settings
from distlab.classroom.engine import Container
from distlab.classroom.seats import Seat
from distlab.classroom.settings import DEFAULTS, ClassroomError
from distlab.ports import free_ports

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.parametrize(
    ("text", "numbers"), [("", [0]), ("3", [3]), (" 3 ", [3]), ("99", [99]), ("1-3", [1, 2, 3]), ("07", [7])]
)
def test_seats(text, numbers):
    assert seats.parse(text) == [Seat(number) for number in numbers]


@pytest.mark.parametrize("text", ["0", "100", "-1", "a", "3-1", "0-3", "1-100", "1,2", "1-", "3.5", "²"])
def test_what_is_no_seat(text):
    with pytest.raises(ClassroomError, match=r"SEAT=.* is no seat: write a number from 1 to 99, such as SEAT=3"):
        seats.parse(text)


def test_a_room():
    assert seats.room("20") == [Seat(number) for number in range(1, 21)]
    assert seats.room("") == [Seat()]
    for text in ("0", "100", "x", "1-20"):
        with pytest.raises(ClassroomError, match="is no number of seats"):
            seats.room(text)


def test_projects():
    assert (Seat().project, Seat(3).project) == ("distlab", "distlab-seat3")
    assert (Seat().words, Seat(3).words) == ("", " SEAT=3")
    for number in (0, 1, 99):
        assert seats.of_project(Seat(number).project) == Seat(number)
    for name in ("", "distlab-test-1", "distlab-preflight", "distlab-seat0", "distlab-seat100", "my-distlab"):
        assert seats.of_project(name) is None


def test_a_seat_adds_ten_to_every_port():
    assert seats.ports(Seat(), DEFAULTS) == {
        "NODE1_PORT": 8000,
        "NODE1_BOARD_PORT": 8006,
        "NODE2_PORT": 9000,
        "NODE2_BOARD_PORT": 9006,
    }
    assert list(seats.ports(Seat(3), DEFAULTS).values()) == [8030, 8036, 9030, 9036]
    assert seats.ports(Seat(2), DEFAULTS | {"NODE1_PORT": "7000"})["NODE1_PORT"] == 7020
    everybodys = [port for number in range(100) for port in seats.ports(Seat(number), DEFAULTS).values()]
    assert len(set(everybodys)) == 400


@pytest.mark.parametrize("text", ["0", "-1", "80a", "65536", "8000.0"])
def test_what_is_no_port(text):
    with pytest.raises(ClassroomError, match=f"NODE2_PORT={text} is no port: choose one from 1024 to 65535"):
        seats.ports(Seat(), DEFAULTS | {"NODE2_PORT": text})


def test_a_port_that_is_none_only_for_a_seat():
    high = DEFAULTS | {"NODE1_PORT": "65000"}
    assert seats.ports(Seat(1), high)["NODE1_PORT"] == 65010
    with pytest.raises(ClassroomError, match="NODE1_PORT=65000, to which seat 99 adds 990, is no port.* to 64545"):
        seats.ports(Seat(99), high)


def test_each_seat_has_its_own_network():
    chosen = {"WORKSHOP_SUBNET": "10.123.0.0/24"}
    found = [seats.subnet(number, chosen) for number in range(101)]
    assert found[0] == "10.123.0.0/24" and found[20] == "10.123.20.0/24"
    assert len(set(found)) == 101


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("10.123.0.1/24", "is no network .*host bits"),
        ("room", "is no network"),
        ("172.31.0.0/16", "leads to 172.34.0.0/16, which is a public network"),
    ],
)
def test_what_is_no_network(text, complaint):
    with pytest.raises(ClassroomError, match=f"{complaint}.*: write one such as 10.123.0.0/24"):
        seats.subnet(3, {"WORKSHOP_SUBNET": text})


def test_the_shell_wins_over_the_file_and_the_file_over_the_default(tmp_path):
    file = tmp_path / ".env"
    file.write_text(
        "NODE1_PORT=7000\nNODE2_PORT='7100'\n#WORKSHOP_SHM=1mb\nWORKSHOP_IMAGE=\nWORKSHOP_NAME=box # ours\n"
    )
    found = settings.load({"NODE2_PORT": "7200", "WORKSHOP_BIND": ""}, file)
    assert (found["NODE1_PORT"], found["NODE2_PORT"]) == ("7000", "7200")
    assert (found["WORKSHOP_SHM"], found["WORKSHOP_IMAGE"], found["WORKSHOP_BIND"]) == ("1gb", "distlab", "127.0.0.1")
    assert found["WORKSHOP_NAME"] == "box"
    assert settings.load({}, tmp_path / "none") == DEFAULTS


def test_the_defaults_are_those_of_the_compose_file():
    text = (ROOT / "docker-compose.yml").read_text()
    assert DEFAULTS.items() <= dict(re.findall(r"\$\{(\w+):-([^}]*)\}", text)).items()


def container(project: str, *published: int) -> Container:
    ports = {8888 + at: port for at, port in enumerate(published)}
    return Container("id", project, "node1", str(ROOT), "running", ports)


@pytest.fixture
def taken():
    """A port that somebody listens on, and settings by which seat 1's node1 has it."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        others = dict(zip(seats.PORTS[1:], map(str, free_ports(3)), strict=True))
        yield port, DEFAULTS | others | {"NODE1_PORT": str(port)}


def test_a_taken_port_is_one_sentence(taken):
    port, chosen = taken
    (clash,) = ports.clashes([Seat()], chosen, [])
    assert str(clash) == (
        f"port {port} (NODE1_PORT) is taken by another program: "
        f"take a SEAT, or another port: make up NODE1_PORT={port + 1}"
    )


def test_a_taken_port_of_a_seat(taken):
    port, chosen = taken
    chosen["NODE1_PORT"] = str(port - 10)
    clash = next(iter(ports.clashes([Seat(1)], chosen, [container("distlab-seat7", port)])))
    assert f"port {port} (NODE1_PORT of seat 1) is taken by distlab-seat7: take another SEAT" in str(clash)
    assert f"make up SEAT=1 NODE1_PORT={port - 9}" in str(clash)


def test_what_we_hold_ourselves_is_no_clash(taken):
    port, chosen = taken
    assert list(ports.clashes([Seat()], chosen, [container("distlab", port)])) == []
    assert list(ports.clashes([Seat()], chosen, [container("distlab", port + 1)])) != []


def test_one_port_for_two():
    free = {name: str(port) for name, port in zip(seats.PORTS, free_ports(4), strict=True)}
    chosen = DEFAULTS | free | {"NODE2_PORT": free["NODE1_PORT"]}
    (clash,) = ports.clashes([Seat()], chosen, [])
    assert f"port {free['NODE1_PORT']} is both NODE1_PORT and NODE2_PORT" in str(clash)


def test_an_address_of_another_machine():
    with pytest.raises(ClassroomError, match="WORKSHOP_BIND=192.0.2.1 is no address of this machine"):
        list(ports.clashes([Seat()], DEFAULTS | {"WORKSHOP_BIND": "192.0.2.1"}, []))


def test_a_connection_that_has_just_been_closed_is_no_obstacle():
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        with socket.create_connection(("127.0.0.1", port)) as client:
            accepted, _ = server.accept()
            # Whoever closes first keeps the port in TIME_WAIT.
            accepted.close()
            client.recv(1)
        assert not ports.is_free("127.0.0.1", port)
    assert ports.is_free("127.0.0.1", port)
