"""The launchers, a file each: what they tell ranks, and how they start them.

A new one is a file here and a name in `LAUNCHERS`; agents, `run` and ranks find all they need in that.
"""

from distlab.launchers.horovodrun import HOROVODRUN, HOROVODRUN_MPI
from distlab.launchers.launcher import Launcher, Start
from distlab.launchers.mpirun import MPIRUN
from distlab.launchers.srun import SRUN
from distlab.launchers.torchrun import TORCHRUN

# A rank takes the first whose variables it sees. One launcher can be started inside another: torchrun by mpirun or
# srun, mpirun by srun, never the other way round. So the inner ones come first.
LAUNCHERS = {launcher.name: launcher for launcher in (TORCHRUN, HOROVODRUN, MPIRUN, HOROVODRUN_MPI, SRUN)}
# What `run` can start ranks with.
RUNS_BY = tuple(name for name, launcher in LAUNCHERS.items() if launcher.command or launcher is TORCHRUN)
# How variables begin that set a launcher or its library, and the exceptions that tell of a lost rank.
SETTINGS = tuple(prefix for launcher in LAUNCHERS.values() for prefix in launcher.settings)
ERRORS = tuple(error for launcher in LAUNCHERS.values() for error in launcher.errors)

__all__ = ["ERRORS", "LAUNCHERS", "RUNS_BY", "SETTINGS", "Launcher", "Start"]
