"""The settings of .env.example: from the shell, and below it from .env, as compose reads them."""

import os
from collections.abc import Mapping
from pathlib import Path

from distlab.errors import DistlabError

ROOT = Path(__file__).resolve().parents[3]

# The same defaults as in docker-compose.yml, for the settings that are read here.
DEFAULTS = {
    "NODE1_BOARD_PORT": "8006",
    "NODE1_PORT": "8000",
    "NODE2_BOARD_PORT": "9006",
    "NODE2_PORT": "9000",
    "WORKSHOP_BIND": "127.0.0.1",
    "WORKSHOP_FOLDER": "./workspace",
    "WORKSHOP_IMAGE": "distlab",
    "WORKSHOP_SHM": "1gb",
}


class ClassroomError(DistlabError):
    """What stands in the way, and what to do about it, in one sentence."""

    def __init__(self, text: str, remedy: str) -> None:
        super().__init__(f"{text}: {remedy}")
        self.text, self.remedy = text, remedy


def parse_env(text: str) -> dict[str, str]:
    r"""The variables of a .env file.

    >>> parse_env('# a comment\nexport A=1 # one\nB="two words"\n#C=3')
    {'A': '1', 'B': 'two words'}
    """
    found = {}
    for line in text.splitlines():
        name, equals, value = line.strip().removeprefix("export ").partition("=")
        if not equals or name.startswith("#"):
            continue
        value = value.strip()
        if value[:1] in ("'", '"'):
            value = value[1:].partition(value[0])[0]
        else:
            value = value.partition(" #")[0].rstrip()
        found[name.strip()] = value
    return found


def load(environ: Mapping[str, str] | None = None, file: Path = ROOT / ".env") -> dict[str, str]:
    """Every setting that has a value: the shell's, else that of .env, else the default."""
    written = parse_env(file.read_text()) if file.exists() else {}
    merged = written | dict(os.environ if environ is None else environ)
    return DEFAULTS | {name: value for name, value in merged.items() if value}
