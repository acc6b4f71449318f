"""Draws what the ranks reported: pictures.NAME for the experiment of the same name."""

from distlab.lessons.horovod.pictures import elastic, fusion, timeline, ways

__all__ = ["elastic", "fusion", "timeline", "ways"]
