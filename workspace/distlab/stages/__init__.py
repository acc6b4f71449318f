"""A model cut into stages: on the devices of one process, or one rank after the other."""

from distlab.stages.cut import evenly, require_cut, stage_of

__all__ = ["evenly", "require_cut", "stage_of"]
