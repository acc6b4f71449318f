"""Run planted mistakes on ranks and store what these reported: `make record-mistakes`.

    python tests/lessons/record_mistakes.py             those whose recording is missing or out of date
    python tests/lessons/record_mistakes.py ddp ring    all of these exercises, anew
    python tests/lessons/record_mistakes.py all         all of them

Mistakes that tests run live have no recording. Ends with status 1 when a check does not say of a mistake
what it has to say; then the recording is kept as it is.
"""

import contextlib
import io
import os
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "kit"))

import exercise
import recorded
from distlab.checks import check, names
from distlab.checks.mistake import Mistake


def record(name: str, planted: Mistake) -> dict:
    """Run one mistake on its hosts.

    Raises:
        AssertionError: the check does not say what it has to.
    """
    with tempfile.TemporaryDirectory(prefix="distlab-mistake-") as folder:
        file = exercise.edited(name, Path(folder), *planted.edits)
        with contextlib.redirect_stdout(io.StringIO()):
            result = check(name, file=file, timeout=planted.seconds)
        packed = recorded.pack(name, planted, result.run)
        exercise.assert_told(planted, result)
        exercise.assert_told(planted, recorded.judged(name, planted, {planted.name: packed}))
        _assert_of_no_machine(str(packed), folder)
    return packed


def _assert_of_no_machine(text: str, folder: str) -> None:
    for word in (folder, tempfile.gettempdir() + "/", str(recorded.PACKAGE), sys.prefix, os.uname().nodename):
        assert word not in text, f"{word} is in the recording"


def main() -> int:
    """Record what is asked for, and say how long each took."""
    asked = names() if sys.argv[1:] == ["all"] else sys.argv[1:]
    unknown = set(asked) - set(names())
    if unknown:
        print(f"no exercise {', '.join(sorted(unknown))}: there is {', '.join(names())}, and all")
        return 2
    os.environ["DISTLAB_RUNS"] = tempfile.mkdtemp(prefix="distlab-record-runs-")
    wrong = []
    for name in names():
        planted = [mistake for own, mistake in exercise.mistakes() if own == name and not mistake.live]
        kept = recorded.load(recorded.file_of(name))
        for mistake in planted:
            fresh = kept.get(mistake.name, {}).get("stamp") == recorded.stamp(name, mistake)
            if name not in asked and (fresh or asked):
                continue
            began = time.monotonic()
            try:
                kept[mistake.name] = record(name, mistake)
                said = "recorded"
            except AssertionError as error:
                wrong.append(f"{name} {mistake.name}: {error}")
                said = "WRONG"
            print(f"{name} {mistake.name}: {said}, {time.monotonic() - began:.1f} s", file=sys.stderr, flush=True)
            done = [kept[other.name] for other in planted if other.name in kept]
            recorded.save(recorded.file_of(name), done)
    print("\n".join(wrong), file=sys.stderr)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
