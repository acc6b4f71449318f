"""Draws what the ranks reported: pictures.NAME for the experiment of the same name."""

from distlab.lessons.messages.pictures import backends, collectives, deadlock, latency, mesh, overlap, ring, sizes

__all__ = ["backends", "collectives", "deadlock", "latency", "mesh", "overlap", "ring", "sizes"]
