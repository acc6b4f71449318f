"""What makes an exercise right, and which mistake was made.

    check("ddp")        # runs exercises/ddp.py on two hosts, prints what holds and the first mistake

An exercise NAME is four files:

    exercises/NAME.py, solutions/NAME.py      what the attendee edits, and one that holds
    lessons/LESSON/check/probe.py             runs in each rank: calls the attendee's functions, reports
    lessons/LESSON/check/requirements.py      what must hold of what the ranks reported, in the order
                                              in which one would mend it; what fails says the mistake

A check runs on two hosts of two ranks each under torchrun, or where and how its requirements say:
HOSTS = "node1:1", LAUNCHER = "horovodrun".
The probe computes, so that nothing here imports torch.
"""

from distlab.checks.checking import check, names
from distlab.checks.result import CheckResult, Requirement

__all__ = ["CheckResult", "Requirement", "check", "names"]
