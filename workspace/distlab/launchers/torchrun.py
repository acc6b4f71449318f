"""torchrun: on each host an agent of its own starts the ranks, so there is no command for all (`agent.torchrun`)."""

from distlab.launchers.launcher import Launcher

TORCHRUN = Launcher(
    name="torchrun",
    variables={
        "rank": "RANK",
        "world_size": "WORLD_SIZE",
        "local_rank": "LOCAL_RANK",
        "local_world_size": "LOCAL_WORLD_SIZE",
        "host_index": "GROUP_RANK",
    },
)
