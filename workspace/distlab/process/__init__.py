"""Inside a rank: who it is, where it computes, how it joins the others and how it leaves.

The one place that chooses device and backend. A training script needs one of these names from here:

    with process.alone() as me:     # one process, no group
    with process.group() as me:     # joins the ranks that the launcher started

`me` is a `Rank`; nothing else in the package reads the launcher's environment variables.
"""

from distlab.process.device import now
from distlab.process.environment import Placement, read_placement
from distlab.process.joining import Rank, alone, group
from distlab.process.precision import AMP_DTYPES, amp_dtype, device_name, units
from distlab.process.share import threads
from distlab.runs import run_folder

__all__ = [
    "AMP_DTYPES",
    "Placement",
    "Rank",
    "alone",
    "amp_dtype",
    "device_name",
    "group",
    "now",
    "read_placement",
    "run_folder",
    "threads",
    "units",
]
