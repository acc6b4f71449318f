"""Who gets which GPU, and what is said about it."""

import pytest
from distlab.classroom.gpus import DRIVER, TOOLKIT, Driver, divide


def driver(count: int) -> Driver:
    return Driver(tuple((str(index), "Tesla T4") for index in range(count)))


@pytest.mark.parametrize(
    ("count", "node1", "node2", "said"),
    [
        (0, "", "", "none, so everything runs on the CPU"),
        (1, "0", "0", "both nodes have 0; ranks share it over gloo (Tesla T4)"),
        (2, "0", "1", "node1 has 0, node2 has 1; the ranks of a node share it over gloo (Tesla T4)"),
        (3, "0", "1", "node1 has 0, node2 has 1; the ranks of a node share it over gloo (Tesla T4)"),
        (4, "0,1", "2,3", "node1 has 0,1, node2 has 2,3 (Tesla T4)"),
        (8, "0,1", "2,3", "node1 has 0,1, node2 has 2,3 (Tesla T4)"),
    ],
)
def test_gpus_are_divided(count, node1, node2, said):
    found = divide(driver(count), True, {})
    assert (found.node1, found.node2, found.text, found.remedy) == (node1, node2, said, "")


def test_a_driver_without_the_toolkit():
    found = divide(driver(4), False, {"NODE1_GPUS": "0", "NODE2_GPUS": "1"})
    assert (found.node1, found.node2, found.remedy) == ("", "", TOOLKIT)
    assert found.text == "Tesla T4, but Docker has no nvidia runtime; everything runs on the CPU"
    assert "nvidia-ctk runtime configure --runtime=docker" in TOOLKIT


def test_the_toolkit_without_a_gpu():
    assert divide(driver(0), True, {}).node1 == ""
    assert divide(driver(0), False, {}).remedy == ""


def test_a_driver_that_fails():
    found = divide(Driver(failure="Driver/library version mismatch"), True, {})
    assert (found.node1, found.remedy) == ("", DRIVER)
    assert "Driver/library version mismatch" in found.text


@pytest.mark.parametrize(
    ("count", "chosen", "node1", "node2"),
    [
        (4, {"NODE1_GPUS": "3", "NODE2_GPUS": "0"}, "3", "0"),
        (4, {"NODE1_GPUS": "3"}, "3", "2,3"),
        (1, {"NODE2_GPUS": "GPU-1234"}, "0", "GPU-1234"),
        (0, {"NODE1_GPUS": "0", "NODE2_GPUS": "1"}, "0", "1"),
        (4, {"NODE1_GPUS": "void", "NODE2_GPUS": "none"}, "", ""),
    ],
)
def test_what_was_chosen_wins(count, chosen, node1, node2):
    found = divide(driver(count), True, chosen)
    assert (found.node1, found.node2) == (node1, node2)
    assert "as NODE1_GPUS and NODE2_GPUS say" in found.text
