"""Print which rank runs where and on what, to check a cluster before training on it.

torchrun --nproc-per-node 2 workspace/distlab/scripts/env_report.py
"""

import argparse
import os

import torch

from distlab import loop, process, report


def describe(me: process.Rank) -> dict[str, object]:
    """What a rank is and has, under the names that torchrun gives to its variables."""
    return {
        "host": me.host,
        "RANK": me.rank,
        "LOCAL_RANK": me.local_rank,
        "GROUP_RANK": me.host_index,
        "LOCAL_WORLD_SIZE": me.local_world_size,
        "WORLD_SIZE": me.world_size,
        "device": str(me.device),
        "backend": me.backend,
        "threads": torch.get_num_threads(),
        "pid": os.getpid(),
        "launcher": me.launcher,
    }


def table(rows: list[dict[str, object]]) -> str:
    """Rows with the same keys as aligned text, keys first."""
    lines = [list(rows[0]), *([str(value) for value in row.values()] for row in rows)]
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    return "\n".join("  ".join(map(str.ljust, line, widths)).rstrip() for line in lines)


def main(argv: list[str] | None = None) -> list[dict[str, object]]:
    """Report this rank, print all from rank 0 in rank order; return all rows."""
    argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter).parse_args(argv)
    with process.group() as me:
        row = describe(me)
        report.log(me, "env", **{key: value for key, value in row.items() if key not in ("host", "RANK")})
        rows = loop.Collectives().all_gather(row)
        me.print(f"started by {me.launcher}")
        me.print(table([{key: value for key, value in row.items() if key != "launcher"} for row in rows]))
        return rows


if __name__ == "__main__":
    main()
