"""Draws what the ranks reported: pictures.NAME for the experiment of the same name."""

from distlab.lessons.ddp.pictures import accuracy, gradients, no_sync, overlap, shards, speed, uneven

__all__ = ["accuracy", "gradients", "no_sync", "overlap", "shards", "speed", "uneven"]
