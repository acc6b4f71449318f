"""What ranks reported of a planted mistake when it was recorded, for today's requirements to judge.

    tests/lessons/LESSON/recorded.jsonl.gz    a line for each mistake: its name, its stamp, what its run handed back

A recording belongs to the code that made it: the stamp is over the solution, the edits and the code that
ran in the ranks. What judges is no part of it, so a sentence may change without a new recording.
"""

import ast
import copy
import gzip
import hashlib
import json
from dataclasses import asdict
from functools import cache
from pathlib import Path

import exercise
from distlab import checks, course
from distlab.checks import CheckResult
from distlab.checks.checking import lesson_of, requirements_of
from distlab.checks.engine import Observed
from distlab.checks.mistake import Mistake
from distlab.checks.trouble import explain
from distlab.launch import RunResult
from distlab.launch.result import RankEnd

LESSONS = Path(__file__).resolve().parents[1] / "lessons"
PACKAGE = Path(checks.__file__).resolve().parents[1]
AGAIN = "record again: make record-mistakes"
# Rooms of which a probe's own code is; the kit below them has tests of its own.
OWN_ROOMS = ("distlab.checks.", "distlab.lessons.")


class NoRecording(AssertionError):
    """There is none, or it is of other code."""


def file_of(name: str) -> Path:
    """The recordings of an exercise."""
    return LESSONS / lesson_of(name) / "recorded.jsonl.gz"


def load(path: Path) -> dict[str, dict]:
    """The recordings of a file by the name of their mistake; none if there is no file."""
    if not path.exists():
        return {}
    lines = gzip.decompress(path.read_bytes()).decode().splitlines()
    return {record["mistake"]: record for record in map(json.loads, lines)}


def save(path: Path, records: list[dict]) -> None:
    """Write recordings; the same ones give the same bytes."""
    text = "".join(json.dumps(record, separators=(",", ":"), sort_keys=True) + "\n" for record in records)
    path.write_bytes(gzip.compress(text.encode(), mtime=0))


def stamp(name: str, planted: Mistake, package: Path = PACKAGE) -> str:
    """What changes when a recording no longer belongs to the code.

    Args:
        package: where the package distlab is.
    """
    parts = [exercise.solution(name), *(part for edit in planted.edits for part in edit), str(planted.seconds)]
    lesson = course.folders()[lesson_of(name)]
    parts += [lesson.exercise_hosts, lesson.exercise_launcher, *_code(package, lesson_of(name))]
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()[:16]


@cache
def _code(package: Path, lesson: str) -> tuple[str, ...]:
    return tuple(without_words(path.read_text()) for path in in_ranks(package, lesson))


def without_words(source: str) -> str:
    """Code without comments, docstrings and layout, which change nothing that ranks do."""
    tree = ast.parse(source)
    for node in ast.walk(tree):
        body = getattr(node, "body", None)
        if (
            isinstance(body, list)
            and body
            and isinstance(body[0], ast.Expr)
            and isinstance(body[0].value, ast.Constant)
        ):
            body[0] = ast.Pass()
    return ast.dump(tree)


def in_ranks(package: Path, lesson: str) -> list[Path]:
    """A lesson's probe and all files of checks and lessons that it imports, directly or not."""
    probe = package / "lessons" / lesson / "check" / "probe.py"
    found, todo = {probe}, [probe]
    while todo:
        for path in _imports(package, todo.pop()):
            if path not in found:
                found.add(path)
                todo.append(path)
    return sorted(found)


def _imports(package: Path, path: Path) -> list[Path]:
    names = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom) and node.module:
            names |= {node.module, *(f"{node.module}.{alias.name}" for alias in node.names)}
        elif isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
    own = [package.parent.joinpath(*name.split(".")).with_suffix(".py") for name in names if name.startswith(OWN_ROOMS)]
    return [file for file in own if file.exists()]


def pack(name: str, planted: Mistake, run: RunResult) -> dict:
    """A run as a recording: what is judged of it, and nothing that tells on which machine or when it was made."""
    began = min((record["time"] for record in run.metrics), default=0.0)
    metrics = [record | {"time": round(record["time"] - began, 3)} for record in run.metrics]
    # Of an error only the first line is judged; the others are a traceback with paths.
    error = run.error and run.error.strip().partition("\n")[0]
    ends = [asdict(end) | {"log": ""} for end in run.ranks]
    what = {"launcher": run.launcher, "ok": run.ok, "hosts": run.hosts, "ranks": ends, "metrics": metrics}
    return {"mistake": planted.name, "stamp": stamp(name, planted), **what, "error": error}


def unpack(record: dict) -> RunResult:
    """The run of a recording."""
    record = copy.deepcopy(record)
    ends = [RankEnd(**end) for end in record["ranks"]]
    return RunResult(
        script="probe.py",
        launcher=record["launcher"],
        ok=record["ok"],
        hosts=record["hosts"],
        ranks=ends,
        seconds=0.0,
        folder=Path(),
        command={},
        metrics=record["metrics"],
        error=record["error"],
    )


def judged(name: str, planted: Mistake, records: dict[str, dict]) -> CheckResult:
    """What a check says today of a recorded mistake.

    Raises:
        NoRecording: it was never recorded, or is out of date.
    """
    if planted.name not in records:
        raise NoRecording(f"{name} {planted.name}: there is no recording, {AGAIN}")
    if records[planted.name]["stamp"] != stamp(name, planted):
        raise NoRecording(f"{name} {planted.name}: what runs in ranks has changed since its recording, {AGAIN}")
    run = unpack(records[planted.name])
    observed = Observed(run, None if run.ok else explain(run, "mine.py", requirements_of(name).hints))
    return CheckResult(name, "mine.py", requirements_of(name).judge(observed), run)
