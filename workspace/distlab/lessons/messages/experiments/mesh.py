"""Ranks as a mesh of hosts and devices: all-reduce along one axis, along the other, and along both.

Rank r begins with 10 to the power r, so that the digits of a sum say whose numbers are in it.
"""

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh

from distlab import process, report

AXES = ("host", "device")


def main() -> None:
    """Run the experiment on this rank. Reports `mesh` and `sums`."""
    with process.group() as me:
        hosts, rest = divmod(me.world_size, me.local_world_size)
        if rest:
            raise SystemExit(f"{me.world_size} ranks are no mesh: each host needs equally many")
        # A mesh of GPUs needs a GPU for each rank; over gloo ranks may share one.
        kind = "cuda" if me.backend == "nccl" else "cpu"
        mesh = init_device_mesh(kind, (hosts, me.local_world_size), mesh_dim_names=AXES)
        along = {axis: mesh.get_group(axis) for axis in AXES}
        report.log(
            me,
            "mesh",
            place=mesh.get_coordinate(),
            ranks={axis: dist.get_process_group_ranks(group) for axis, group in along.items()},
            whole=mesh.mesh,
        )
        own = torch.tensor(10.0**me.rank, dtype=torch.float64, device=me.device)
        within, across, everywhere = own.clone(), own.clone(), own.clone()
        # The axis "device" is a row, the ranks of one host; the axis "host" is a column, one rank of each host.
        dist.all_reduce(within, group=along["device"])
        dist.all_reduce(across, group=along["host"])
        dist.all_reduce(everywhere)
        both = within.clone()
        dist.all_reduce(both, group=along["host"])
        report.log(me, "sums", own=own, within=within, across=across, both=both, everywhere=everywhere)


if __name__ == "__main__":
    main()
