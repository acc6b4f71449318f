r"""What makes an exercise right, and which mistake was made.

    check("ddp")        # runs exercises/ddp.py on two hosts, prints what holds and the first mistake

An exercise NAME is its lesson's card and five files:

    lessons/LESSON/__init__.py                exercise="NAME"; exercise_hosts and exercise_launcher when
                                              it does not run on two hosts of two ranks each under torchrun
    exercises/NAME.py, solutions/NAME.py      what the attendee edits, and one that holds
    lessons/LESSON/check/probe.py             runs in each rank: calls the attendee's functions, reports
    lessons/LESSON/check/requirements.py      REQUIREMENTS: what must hold of what the ranks reported, in
                                              the order in which one would mend it
    lessons/LESSON/check/mistakes.py          MISTAKES: what people do wrong, and what the check says then

A requirement is a function from what was observed to the sentence of the mistake, or None:

    REQUIREMENTS = Requirements()

    @REQUIREMENTS.add(needs=("joins",))
    def leaves(observed: Observed) -> str | None:
        '''TODO 8: the group is left at the end'''
        still = [record["rank"] for record in observed.each("trained") if not record["group_left"]]
        return f"{plural('rank', still)} left the process group open" if still else None

It is judged when those that it needs hold. It raises Open when too little was observed. Any other error is
the fault of the requirement, never the attendee's. A mistake is the solution with some text replaced:

    MISTAKES = (
        Mistake("group stays", [("    dist.destroy_process_group()\n", "")], "leaves", "left the process group open"),
    )

Tests run mistakes with live=True on ranks. Of the others they judge what ranks reported when `make
record-mistakes` ran them, which is due again when the solution, the mistake or code in ranks changes.
The probe computes, so that nothing here and no requirements import torch.
"""

from distlab.checks.checking import check, names
from distlab.checks.result import CheckResult, Requirement

__all__ = ["CheckResult", "Requirement", "check", "names"]
