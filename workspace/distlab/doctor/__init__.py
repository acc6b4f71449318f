"""What is here, what will work, what is wrong and how to mend it."""

from distlab.doctor.finding import Finding, print_findings

__all__ = ["Finding", "examine", "print_findings"]


# The machine that holds the containers uses findings too, and lacks what the checks import.
def __getattr__(name: str) -> object:
    if name != "examine":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from distlab.doctor.checks import examine

    return examine
