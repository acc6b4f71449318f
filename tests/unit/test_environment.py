"""Which rank a process is, from the variables of each launcher."""

import pytest
from distlab.process.environment import read_placement, read_seconds

TORCHRUN = {
    "RANK": "3",
    "WORLD_SIZE": "4",
    "LOCAL_RANK": "1",
    "LOCAL_WORLD_SIZE": "2",
    "GROUP_RANK": "1",
    "DISTLAB_HOST": "node2",
}
MPIRUN = {
    "OMPI_COMM_WORLD_RANK": "3",
    "OMPI_COMM_WORLD_SIZE": "4",
    "OMPI_COMM_WORLD_LOCAL_RANK": "1",
    "OMPI_COMM_WORLD_LOCAL_SIZE": "2",
    "DISTLAB_HOST": "node2",
}
HOROVODRUN = {
    "HOROVOD_RANK": "3",
    "HOROVOD_SIZE": "4",
    "HOROVOD_LOCAL_RANK": "1",
    "HOROVOD_LOCAL_SIZE": "2",
    "HOROVOD_CROSS_RANK": "1",
    "DISTLAB_HOST": "node2",
}
SRUN = {"SLURM_PROCID": "3", "SLURM_NTASKS": "4", "SLURM_LOCALID": "1", "SLURM_NODEID": "1", "DISTLAB_HOST": "node2"}


@pytest.mark.parametrize(
    ("environ", "launcher", "local_size"),
    [(TORCHRUN, "torchrun", 2), (HOROVODRUN, "horovodrun", 2), (MPIRUN, "mpirun", 2), (SRUN, "srun", 2)],
)
def test_each_launcher_tells_the_same(environ, launcher, local_size):
    at = read_placement(environ)
    assert (at.rank, at.world_size, at.local_rank, at.local_world_size) == (3, 4, 1, local_size)
    assert (at.host_index, at.host, at.launcher) == (1, "node2", launcher)


def test_on_uneven_hosts_our_agents_say_which_host_it_is():
    uneven = {"OMPI_COMM_WORLD_RANK": "1", "OMPI_COMM_WORLD_SIZE": "3", "DISTLAB_HOST_INDEX": "1"}
    local = {"OMPI_COMM_WORLD_LOCAL_RANK": "0", "OMPI_COMM_WORLD_LOCAL_SIZE": "2"}
    assert read_placement(uneven | local).host_index == 1


def test_torchrun_comes_first_wherever_it_was_started():
    assert read_placement(MPIRUN | SRUN | TORCHRUN | {"RANK": "2"}).rank == 2
    assert read_placement(SRUN | MPIRUN).launcher == "mpirun"


def test_without_a_launcher_there_is_one_rank():
    at = read_placement({})
    assert (at.rank, at.world_size, at.local_rank, at.local_world_size, at.launcher) == (0, 1, 0, 1, "none")


def test_a_rank_set_by_hand_is_alone_on_its_host():
    at = read_placement({"RANK": "3", "WORLD_SIZE": "4"})
    assert (at.local_rank, at.local_world_size, at.host_index) == (0, 1, 3)
    at = read_placement({"RANK": "3", "WORLD_SIZE": "4", "LOCAL_RANK": "1"})
    assert (at.local_rank, at.local_world_size) == (1, 2)


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"RANK": "4"}, "RANK=4 lies outside WORLD_SIZE=4: ranks count from 0 to 3"),
        ({"RANK": "-1"}, "RANK=-1 lies outside WORLD_SIZE=4"),
        ({"WORLD_SIZE": "0"}, "RANK=3 lies outside WORLD_SIZE=0"),
        ({"RANK": "1.0"}, "RANK='1.0' is not a whole number"),
        ({"WORLD_SIZE": ""}, "WORLD_SIZE='' is not a whole number"),
        ({"LOCAL_RANK": "2"}, "LOCAL_RANK=2 lies outside a host of 2 ranks"),
        ({"GROUP_RANK": "b"}, "GROUP_RANK='b' is not a whole number"),
    ],
)
def test_variables_that_make_no_sense_are_named(changed, message):
    with pytest.raises(ValueError, match=message.replace("(", r"\(")):
        read_placement(TORCHRUN | changed)


@pytest.mark.parametrize(("there", "missing"), [("RANK", "WORLD_SIZE"), ("WORLD_SIZE", "RANK")])
def test_one_of_two_is_not_enough(there, missing):
    with pytest.raises(ValueError, match=f"{there} is set but {missing} is not: set both, or start with torchrun"):
        read_placement({there: "1"})


def test_durations():
    assert read_seconds("WAIT", 60, {}) == 60
    assert read_seconds("WAIT", 60, {"WAIT": ""}) == 60
    assert read_seconds("WAIT", 60, {"WAIT": "2.5"}) == 2.5
    for text in ("soon", "-1", "0", "nan", "inf"):
        with pytest.raises(ValueError, match=f"WAIT='{text}' is not a number of seconds above 0"):
            read_seconds("WAIT", 60, {"WAIT": text})
