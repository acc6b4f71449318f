"""On which port ranks meet: one that nobody else is given by chance."""

import socket

import pytest
from distlab.agent import torchrun


@pytest.fixture
def given(monkeypatch, tmp_path):
    """Sets from which port on the kernel hands them out."""

    def set_one(text: str) -> None:
        (tmp_path / "range").write_text(text)
        monkeypatch.setattr(torchrun, "GIVEN", tmp_path / "range")

    return set_one


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("32768\t60999\n", range(20000, 30000)),
        ("24000 65000", range(20000, 24000)),
        ("1024 65535", range(0)),
        ("", range(0)),
        ("many", range(0)),
    ],
)
def test_own_ports_lie_below_those_that_the_kernel_hands_out(given, text, expected):
    given(text)
    own = torchrun.own_ports()
    assert list(own) == list(expected)


def test_where_the_kernel_does_not_say_it_is_asked_for_a_port(monkeypatch, tmp_path):
    monkeypatch.setattr(torchrun, "GIVEN", tmp_path / "absent")
    with torchrun.listen("127.0.0.1", None)[0] as server:
        assert server.getsockname()[1] not in torchrun.OWN_PORTS


def test_a_rendezvous_has_a_port_of_its_own(given):
    given("32768 60999")
    opened = [torchrun.listen("127.0.0.1", None) for _ in range(30)]
    ports = [server.getsockname()[1] for server, _ in opened]
    for server, taken in opened:
        server.close()
        assert not taken
    assert all(port in range(20000, 30000) for port in ports)
    # By chance, so that two users of one machine seldom want the same.
    assert len(set(ports)) == 30


def test_own_ports_that_are_taken_are_passed_over(given):
    given("20002 60999")
    with torchrun.listen("127.0.0.1", 20000)[0], torchrun.listen("127.0.0.1", None)[0] as second:
        assert second.getsockname()[1] == 20001
        server, taken = torchrun.listen("127.0.0.1", None)
        with server:
            assert server.getsockname()[1] not in (20000, 20001) and not taken
        server, taken = torchrun.listen("127.0.0.1", 20000)
        with server:
            assert taken


def test_the_error_of_an_address_that_is_not_here_is_the_systems():
    with pytest.raises(OSError, match="assign requested address"):
        torchrun.listen("192.0.2.1", None)


def test_a_socket_waits_on_it():
    with torchrun.listen("127.0.0.1", None)[0] as server:
        socket.create_connection(server.getsockname(), timeout=5).close()
