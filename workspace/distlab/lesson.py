"""What a lesson's cells say: claims, guesses, scripts and their differences, the first and the last cell.

    from distlab.lesson import begin, claim, commands, compare, diff, each, end, source

Nothing here imports torch: a notebook's kernel stays light, and CUDA stays untouched.
"""

import difflib
import html
import numbers
import textwrap
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, TypeGuard

import psutil

from distlab import ranks
from distlab.hosts import find
from distlab.launch import RunResult, default_session
from distlab.launch.scripts import find_script

BLOCK = (
    "background:#ffffff;color:#222831;border:1px solid #e5e7eb;border-radius:6px;padding:8px 12px;margin:0;"
    "font-family:ui-monospace,Menlo,Consolas,'DejaVu Sans Mono',monospace;font-size:13px;line-height:1.45;"
)
WRAP = "white-space:pre-wrap;overflow-wrap:anywhere;"
# The sign at the start of a line says the same without colour.
LINE = {"+": "background:#d6f3e4;", "-": "background:#fbdedb;", "@": "color:#6b7280;"}


class Shown:
    """A text that a notebook shows as HTML and everything else as it is."""

    def __init__(self, text: str, markup: str) -> None:
        self.text, self.markup = text, markup

    def __repr__(self) -> str:
        return self.text

    def _repr_html_(self) -> str:
        return self.markup


class Verdict(int):
    """1 when a claim holds, else 0. As the last value of a cell it shows nothing: claim() has printed its line."""

    def _ipython_display_(self) -> None:
        pass


def claim(text: str, holds: object, measured: object = None) -> Verdict:
    """Print a sentence and whether it holds: the same line on every machine as long as it does.

    Args:
        measured: what to say when it does not hold, such as the difference that was too large.

    Returns:
        Whether it holds.
    """
    try:
        true = bool(holds)
    except (TypeError, ValueError) as error:
        true, measured = False, f"{error}"
    if true:
        print(f"✓ {text}: True")
    else:
        print(f"✗ {text}: False" + ("" if measured is None else f" (measured {_number(measured)})"))
    return Verdict(true)


def each(records: Iterable[dict[str, Any]] | Mapping[int, dict[str, Any]], key: str) -> list[Any]:
    """One value of every record, in rank order.

    Args:
        records: as `RunResult.records` or `RunResult.last` returns them.

    Raises:
        KeyError: a record has no such value; says which there are.
    """
    found = records.values() if isinstance(records, Mapping) else records
    ordered = sorted(found, key=lambda record: record["rank"])
    for record in ordered:
        if key not in record:
            raise KeyError(f"no {key!r} in a record of rank {record['rank']}: it has {', '.join(record)}")
    return [record[key] for record in ordered]


def compare(guess: object, measured: object, unit: str = "", *, within: float = 0.1) -> None:
    """Hold a guess against what was measured, kindly.

    Args:
        guess: None while the reader has not written one.
        unit: for the measured value, such as 'samples'.
        within: how far off a guess may be, as a share of the measured value, to count as right.
    """
    value = f"{_number(measured)} {unit}".strip()
    if guess is None:
        print(f"You made no guess this time: it is {value}.")
        return
    if guess == measured:
        print(f"You guessed {_number(guess)}, and it is {value}. Exactly.")
    elif not (_is_number(guess) and _is_number(measured)):
        print(f"You guessed {_number(guess)}; it is {value}. Now find out why.")
    elif abs(guess - measured) <= within * abs(measured):
        print(f"You guessed {_number(guess)}, and it is {value}. Close enough.")
    else:
        more = "more" if measured > guess else "less"
        print(f"You guessed {_number(guess)}; it is {value}, {more} than you thought.")


def _is_number(value: object) -> TypeGuard[float]:
    return isinstance(value, numbers.Real) and not isinstance(value, bool)


def _number(value: object) -> str:
    if not _is_number(value):
        return str(value)
    return f"{value:,}" if isinstance(value, numbers.Integral) else f"{value:.3g}"


def source(script: str | Path) -> Shown:
    """A script, in full.

    Args:
        script: by name (`"ddp"`) or by path, as `run` takes it.
    """
    from pygments import highlight
    from pygments.formatters import HtmlFormatter
    from pygments.lexers import PythonLexer

    path = find_script(script)
    text = path.read_text().rstrip()
    look = HtmlFormatter(noclasses=True, style="friendly", nowrap=True)
    block = f'<pre style="{BLOCK}{WRAP}">{highlight(text, PythonLexer(), look)}</pre>'
    return Shown(text, _title(path.name) + block)


def diff(before: str | Path, after: str | Path, context: int = 2) -> Shown:
    """What changes from one script to the next, as a unified diff."""
    paths = find_script(before), find_script(after)
    old, new = (path.read_text().splitlines() for path in paths)
    lines = list(difflib.unified_diff(old, new, paths[0].name, paths[1].name, lineterm="", n=context))
    title = f"{paths[0].name} → {paths[1].name}"
    if not lines:
        return Shown(f"{title}: no difference", _title(f"{title}: no difference"))
    body = "".join(_diff_line(line) for line in lines[2:])
    block = f'<pre style="{BLOCK}{WRAP}">{body}</pre>'
    return Shown("\n".join(lines), _title(title) + block)


def _diff_line(line: str) -> str:
    if line.startswith("@"):
        line = "···"
    style = f"display:block;font-family:inherit;{LINE.get(line[:1], '')}"
    return f'<span style="{style}">{html.escape(line) or " "}</span>'


def _title(text: str) -> str:
    return f'<p style="margin:0 0 4px 0"><b>{html.escape(text)}</b></p>'


def commands(result: RunResult) -> Shown:
    """What a person would type on each host to start the same ranks, folded away."""
    lines = [f"{host}$ {command}" for host, command in result.command.items()]
    summary = f"the commands behind this run ({result.seconds:.1f} s here)"
    block = f'<pre style="{BLOCK}{WRAP}">{html.escape(chr(10).join(lines))}</pre>'
    wrapped = "\n".join(
        "\n".join(textwrap.wrap(line, 100, subsequent_indent="    ", break_long_words=False, break_on_hyphens=False))
        for line in lines
    )
    return Shown(wrapped, f"<details><summary>{summary}</summary>{block}</details>")


def begin(title: str) -> None:
    """Show the hosts found here and start to warm them up, so that the first run need not wait.

    Raises:
        HostsError: what names the hosts is malformed.
    """
    from IPython.display import display

    found = find()
    default_session().warm(found.hosts)
    display(found)
    print(f"{title}: ready. The hosts warm up while you read.")


def end() -> None:
    """Stop what the lesson started, and say whether all of it is gone."""
    session = default_session()
    started = [process for pid in (*session.pids.values(), *ranks.pids()) for process in _family(pid)]
    ranks.stop()
    session.close()
    psutil.wait_procs(started, timeout=5)
    left = [process.pid for process in started if _runs(process)]
    claim("nothing that this lesson started is still running", not left, f"processes {left}")


def _family(pid: int) -> list[psutil.Process]:
    try:
        parent = psutil.Process(pid)
        return [parent, *parent.children(recursive=True)]
    except psutil.NoSuchProcess:
        return []


def _runs(process: psutil.Process) -> bool:
    try:
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False
