"""Draws what the ranks reported: pictures.NAME for the experiment of the same name."""

from distlab.lessons.data_parallel.pictures import memory, parts, speed, step, threads

__all__ = ["memory", "parts", "speed", "step", "threads"]
