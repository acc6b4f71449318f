"""srun: ranks know what it tells them; Slurm starts them, and `run` does not."""

from distlab.launchers.launcher import Launcher

SRUN = Launcher(
    name="srun",
    variables={
        "rank": "SLURM_PROCID",
        "world_size": "SLURM_NTASKS",
        "local_rank": "SLURM_LOCALID",
        "host_index": "SLURM_NODEID",
    },
)
