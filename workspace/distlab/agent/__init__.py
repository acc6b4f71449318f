"""The agent of a host: starts its ranks, sees them end, and leaves nothing of them behind.

`launch` starts one per host and talks to it; nothing else does. It is a room of its own so that
an agent imports little: cold starts wait for it.
"""
