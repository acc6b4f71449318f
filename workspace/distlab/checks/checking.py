"""From the name of an exercise to what its file does on the hosts."""

import difflib
import errno
import os
from importlib import import_module
from pathlib import Path

from distlab import course
from distlab.checks.engine import Observed, Requirements
from distlab.checks.result import CheckResult, Requirement
from distlab.checks.trouble import explain
from distlab.course import CourseError
from distlab.hosts import Host, HostsError, parse
from distlab.launch import RunFailed, run
from distlab.runs import WORKSPACE

# Agents that start cold on a busy machine, and the end of a job that stands still.
START_SECONDS = 90.0


def names() -> list[str]:
    """The exercises that can be checked."""
    return sorted(_lessons())


def _lessons() -> dict[str, str]:
    return {lesson.exercise: name for name, lesson in course.folders().items() if lesson.exercise}


def lesson_of(exercise: str) -> str:
    """The name of the lesson that the exercise ends."""
    return _lessons()[exercise]


def requirements_of(exercise: str) -> Requirements:
    """What must hold of it."""
    found: Requirements = import_module(f"distlab.lessons.{lesson_of(exercise)}.check.requirements").REQUIREMENTS
    return found


def _find(exercise: str, file: str | os.PathLike[str] | None) -> Path:
    if exercise not in names():
        close = difflib.get_close_matches(str(exercise), names(), 1)
        hint = f"did you mean {close[0]}?" if close else f"there is {', '.join(names())}"
        raise CourseError(f"no exercise {exercise!r}: {hint}")
    wanted = Path(file or Path("exercises") / f"{exercise}.py").expanduser()
    if wanted.suffix != ".py":
        raise CourseError(f"{wanted.as_posix()} is no Python file: name one that ends in .py")
    for base in (WORKSPACE,) if file is None else (Path.cwd(), WORKSPACE):
        if (base / wanted).is_file():
            return (base / wanted).resolve()
    raise FileNotFoundError(
        errno.ENOENT, f"no file {wanted.as_posix()}: save your work there, or name yours with file= (--file)"
    )


def _shown(path: Path) -> str:
    # The same on every machine, wherever the workspace is.
    return path.relative_to(WORKSPACE).as_posix() if path.is_relative_to(WORKSPACE) else path.name


def _syntax(path: Path) -> str | None:
    try:
        compile(path.read_bytes(), str(path), "exec", dont_inherit=True)
    except SyntaxError as error:
        where = f"line {error.lineno}" if error.lineno else "somewhere"
        code = f" in {error.text.strip()}" if error.text and error.text.strip() else ""
        return f"{_shown(path)}, {where}: Python cannot read it ({error.msg}{code})"
    except ValueError as error:
        return f"{_shown(path)}: Python cannot read it ({error})"
    return None


def check(
    exercise: str,
    file: str | os.PathLike[str] | None = None,
    hosts: str | None = None,
    timeout: float = 20.0,
) -> CheckResult:
    """Run an exercise on its hosts, print what holds, and name the first mistake in one sentence.

    Args:
        file: yours, if it is not exercises/NAME.py.
        hosts: where; by default two hosts of two ranks each, or what the exercise needs.
        timeout: seconds that the functions of the file may take, once they run.

    Raises:
        CourseError: there is no such exercise, or the file is none of Python's.
        FileNotFoundError: there is no such file.
        HostsError, HostError: the hosts cannot be used.
        ScriptError: what its launcher needs is not built yet.
    """
    path = _find(exercise, file)
    own = parse(course.folders()[lesson_of(exercise)].exercise_hosts)
    where = parse(hosts) if hosts else own
    if sum(host.slots for host in where) < 2 <= sum(host.slots for host in own):
        raise HostsError(f"hosts {hosts!r} have one slot: ranks can only be compared when there are two or more")
    unreadable = _syntax(path)
    if unreadable:
        result = CheckResult(exercise, _shown(path), [Requirement("reads", "Python can read it", "broken", unreadable)])
    else:
        observed = _observe(exercise, path, where, timeout)
        result = CheckResult(exercise, _shown(path), requirements_of(exercise).judge(observed), observed.result)
    print(result, flush=True)
    return result


def _observe(exercise: str, path: Path, where: list[Host], timeout: float) -> Observed:
    """Run the probe of an exercise with a file that Python can read."""
    # Without GPUs a check gives the same answer on every machine.
    env = {"CUDA_VISIBLE_DEVICES": "", "DISTLAB_JOIN_TIMEOUT": str(timeout + 10)}
    lesson = lesson_of(exercise)
    probe, launcher = course.FOLDER / lesson / "check" / "probe.py", course.folders()[lesson].exercise_launcher
    words, limit = (str(path), str(timeout)), timeout + START_SECONDS
    try:
        return Observed(run(probe, *words, hosts=where, launcher=launcher, timeout=limit, env=env, quiet=True), None)
    except RunFailed as failure:
        return Observed(failure.result, explain(failure.result, _shown(path), requirements_of(exercise).hints))
