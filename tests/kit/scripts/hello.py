"""The smallest script with a group."""

from distlab import process

with process.group() as me:
    print(f"rank {me.rank} of {me.world_size} on {me.host}")
