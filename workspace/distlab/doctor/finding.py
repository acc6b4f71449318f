"""One thing that the doctor looked at."""

from dataclasses import asdict, dataclass

from rich.console import Console
from rich.table import Table

# Fits a notebook's page, where nobody can widen the window.
COLUMNS = 100
MARKS = {"fine": "[green]fine[/]", "note": "[yellow]note[/]", "wrong": "[bold red]wrong[/]"}


@dataclass(frozen=True)
class Finding:
    """`state` is 'fine', 'note' (works, but know this) or 'wrong' (a lesson cannot run)."""

    name: str
    state: str
    text: str
    remedy: str = ""

    @property
    def ok(self) -> bool:
        """False when a lesson cannot run."""
        return self.state != "wrong"

    def as_dict(self) -> dict[str, str]:
        """For JSON."""
        return asdict(self)


def print_findings(findings: list[Finding], console: Console | None = None) -> None:
    """A table, and below it what to do."""
    console = console or Console(highlight=False, width=COLUMNS)
    table = Table(show_header=False, box=None, padding=(0, 2, 0, 0))
    for one in findings:
        table.add_row(MARKS[one.state], one.name, one.text)
    console.print(table)
    for one in findings:
        if one.remedy:
            console.print(f"{one.name}: {one.remedy}", markup=False)
    wrong = sum(not one.ok for one in findings)
    console.print("Every lesson here can run." if not wrong else f"{wrong} of {len(findings)} checks went wrong.")
