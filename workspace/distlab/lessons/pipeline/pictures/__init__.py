"""Draws what the ranks reported: pictures.NAME for the experiment of the same name."""

from distlab.lessons.pipeline.pictures import balance, bubbles, links, memory, split_times, steps

__all__ = ["balance", "bubbles", "links", "memory", "split_times", "steps"]
