"""What is here, what will work, what is wrong and how to mend it."""

from typing import TYPE_CHECKING

from distlab.doctor.diagnosis import Diagnosis, print_diagnoses

if TYPE_CHECKING:
    from distlab.doctor.checks import examine

__all__ = ["Diagnosis", "examine", "print_diagnoses"]


# `classroom` uses diagnoses on a machine that has only Python, where the checks cannot be imported.
def __getattr__(name: str) -> object:
    if name != "examine":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from distlab.doctor.checks import examine

    return examine
