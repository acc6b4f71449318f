"""One process, several devices: DataParallel, for real or by a stand-in that can be read.

    model = replicas.data_parallel(model, me)

With two GPUs or more that is torch's nn.DataParallel. Elsewhere the same four steps, written out in
`steps`, run on shares of the CPU's cores, or on the only GPU.
"""

from distlab.replicas.choice import data_parallel, wrap
from distlab.replicas.following import STEPS, follow, now, time_steps
from distlab.replicas.standin import StandIn
from distlab.replicas.steps import gather, parallel_apply, replicate, scatter

__all__ = [
    "STEPS",
    "StandIn",
    "data_parallel",
    "follow",
    "gather",
    "now",
    "parallel_apply",
    "replicate",
    "scatter",
    "time_steps",
    "wrap",
]
