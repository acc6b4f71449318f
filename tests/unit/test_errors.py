"""Errors meant for people."""

import pytest
from distlab.errors import DistlabError
from IPython.core.interactiveshell import InteractiveShell
from IPython.utils.capture import capture_output


class Lost(DistlabError, ValueError):
    """One that is also one of Python's."""


def shown(error: Exception) -> str:
    """What a notebook shows when a cell raises it."""
    shell = InteractiveShell()
    shell.user_ns["error"] = error
    with capture_output() as captured:
        shell.run_cell("raise error")
    return captured.stdout + captured.stderr


@pytest.mark.parametrize("kind", [DistlabError, Lost])
def test_a_notebook_shows_the_text_alone(kind):
    assert shown(kind("node2 is not up: docker compose ps")).strip() == "node2 is not up: docker compose ps"


def test_other_errors_keep_their_frames():
    assert "Traceback" in shown(ValueError("mine"))


def test_one_is_caught_as_either_of_its_bases():
    for base in (DistlabError, ValueError):
        with pytest.raises(base, match="^gone$"):
            raise Lost("gone")


def test_one_of_the_systems_says_its_sentence_without_the_number():
    class Full(DistlabError, OSError):
        """A disk that is full."""

    error = Full(28, "free some space")
    assert (str(error), error.errno) == ("free some space", 28)
