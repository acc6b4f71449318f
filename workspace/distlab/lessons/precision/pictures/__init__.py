"""Draws what the ranks reported: pictures.NAME for the experiment of the same name."""

from distlab.lessons.precision.pictures import clip, curves, formats, layout, scale, speed, underflow

__all__ = ["clip", "curves", "formats", "layout", "scale", "speed", "underflow"]
