"""A model cut into stages: on the devices of one process, or one rank after the other.

plan = stages.plan(args, me)
model = stages.Pipeline(me, plan, whole_model, args)
loop.fit(me, model, optimizer, train, val, args, step=model.step, collectives=stages.Collectives(model))
"""

from distlab.stages.collectives import Collectives
from distlab.stages.cut import evenly, require_cut, stage_of
from distlab.stages.devices import OnDevices
from distlab.stages.pipeline import Pipeline
from distlab.stages.planning import SCHEDULES, Plan, options, plan, rank_of

__all__ = [
    "SCHEDULES",
    "OnDevices",
    "Pipeline",
    "Plan",
    "Collectives",
    "evenly",
    "options",
    "plan",
    "rank_of",
    "require_cut",
    "stage_of",
]
