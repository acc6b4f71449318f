"""What is here, what will work, what is wrong and how to mend it."""

from distlab.doctor.checks import examine
from distlab.doctor.finding import Finding, print_findings

__all__ = ["Finding", "examine", "print_findings"]
