"""Ports to listen on: those that nobody else is given by chance."""

import socket

import pytest
from distlab import ports


@pytest.fixture
def given(monkeypatch, tmp_path):
    """Sets from which port on the kernel hands them out."""

    def set_range(text: str) -> None:
        (tmp_path / "range").write_text(text)
        monkeypatch.setattr(ports, "GIVEN", tmp_path / "range")

    return set_range


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
    own = ports.own_ports()
    assert list(own) == list(expected)


def test_where_the_kernel_does_not_say_it_is_asked_for_a_port(monkeypatch, tmp_path):
    monkeypatch.setattr(ports, "GIVEN", tmp_path / "absent")
    with ports.listen("127.0.0.1", None)[0] as server:
        assert server.getsockname()[1] not in ports.OWN_PORTS


def test_a_rendezvous_has_a_port_of_its_own(given):
    given("32768 60999")
    opened = [ports.listen("127.0.0.1", None) for _ in range(30)]
    found = [server.getsockname()[1] for server, _ in opened]
    for server, taken in opened:
        server.close()
        assert not taken
    assert all(port in range(20000, 30000) for port in found)
    # By chance, so that two users of one machine seldom want the same.
    assert len(set(found)) == 30


def test_own_ports_that_are_taken_are_passed_over(given):
    given("20002 60999")
    with ports.listen("127.0.0.1", 20000)[0], ports.listen("127.0.0.1", None)[0] as second:
        assert second.getsockname()[1] == 20001
        server, taken = ports.listen("127.0.0.1", None)
        with server:
            assert server.getsockname()[1] not in (20000, 20001) and not taken
        server, taken = ports.listen("127.0.0.1", 20000)
        with server:
            assert taken


def test_the_error_of_an_address_that_is_not_here_is_the_systems():
    with pytest.raises(ports.PortError, match="^Cannot assign requested address$"):
        ports.listen("192.0.2.1", None)


def test_a_socket_waits_on_it():
    with ports.listen("127.0.0.1", None)[0] as server:
        socket.create_connection(server.getsockname(), timeout=5).close()


def test_a_wanted_port_for_which_no_other_will_do():
    with ports.listen()[0] as server:
        port = server.getsockname()[1]
        assert ports.free_port(wanted=port) != port
        with pytest.raises(ports.PortError, match="^Address already in use$"):
            ports.free_port(wanted=port, others=False)
    assert ports.free_port(wanted=port) == ports.free_port(wanted=port, others=False) == port
    assert ports.free_port(wanted=0, others=False)


@pytest.mark.parametrize("others", [True, False])
def test_what_is_no_port(others):
    with pytest.raises(ports.PortError, match="^70000 is no port: give one from 1 to 65535$"):
        ports.listen(wanted=70_000, others=others)


def test_the_other_family_of_addresses():
    with ports.listen("::1")[0] as server:
        socket.create_connection(server.getsockname()[:2], timeout=5).close()


def test_several_ports_are_different_and_free(given):
    # One port of our own: without holding it, all would be that one.
    given("20001 60999")
    found = ports.free_ports(4)
    assert len(set(found)) == 4
    for port in found:
        with socket.create_server(("127.0.0.1", port)):
            pass
