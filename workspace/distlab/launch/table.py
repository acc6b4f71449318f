"""A run's result as a small table."""

import re
import textwrap

from rich.console import Console
from rich.table import Table

from distlab.launch.result import RunResult

# As wide as a notebook's page.
WIDTH = 88
QUOTED = re.compile(r"'[^']*'")
HARD_SPACE = "\xa0"
# Columns of the "end" records that training scripts leave, in the order in which they are read.
COLUMNS = {
    "images": ("images seen", "{:,}"),
    "images_per_second": ("images/s", "{:,.0f}"),
    "loss": ("loss", "{:.4f}"),
    "accuracy": ("accuracy", "{:.1%}"),
}


def result_table(result: RunResult) -> Table:
    """One row per rank: host, rank, how it ended, and what it reported at its end."""
    ends = result.last("end")
    names = [name for name in COLUMNS if any(name in record for record in ends.values())]
    table = Table(title=f"{result.script} on {', '.join(result.hosts)}", title_justify="left")
    table.add_column("host")
    table.add_column("rank", justify="right")
    for name in names:
        table.add_column(COLUMNS[name][0], justify="right")
    if not names or not result.ok:
        table.add_column("ended")
    for end in result.ranks:
        record = ends.get(end.rank, {})
        cells = [COLUMNS[name][1].format(record[name]) if name in record else "" for name in names]
        ended = [end.how] if not names or not result.ok else []
        table.add_row(end.host, str(end.rank), *cells, *ended)
    return table


def fold(command: str) -> str:
    r"""A command over several lines, as a shell takes it.

    >>> print(fold("torchrun --nnodes 2 " + "--master-addr " + "a" * 80))
    torchrun --nnodes 2 --master-addr \
        aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa
    >>> print(fold("mpirun " + "-x " * 25 + "'two words'"))
    mpirun -x -x -x -x -x -x -x -x -x -x -x -x -x -x -x -x -x -x -x -x -x -x -x -x -x \
        'two words'
    """
    # Within quotes a backslash would be part of the word, so there the line is not folded.
    whole = QUOTED.sub(lambda word: word[0].replace(" ", HARD_SPACE), command)
    lines = textwrap.wrap(whole, WIDTH - 2, subsequent_indent="    ", break_long_words=False, break_on_hyphens=False)
    return " \\\n".join(lines).replace(HARD_SPACE, " ")


def print_result(result: RunResult, console: Console | None = None) -> None:
    """Print the table and the command that a person would type on each host."""
    console = console or Console(highlight=False)
    console.print(result_table(result))
    for host, command in result.command.items():
        console.print(fold(f"{host}$ {command}"), soft_wrap=True, markup=False)
