"""From what a person asks for to a script, its arguments and a launcher."""

import pytest
from distlab.launch import ScriptError, run, script_names
from distlab.launch.scripts import find_script, to_arguments
from distlab.launchers import RUNS_BY


def test_a_lessons_script_by_name():
    assert {"single", "ddp", "env_report"} <= set(script_names())
    assert find_script("ddp").name == "ddp.py"
    assert find_script("ddp").is_absolute()


def test_a_script_by_path(tmp_path, monkeypatch):
    (tmp_path / "mine.py").write_text("")
    monkeypatch.chdir(tmp_path)
    assert find_script("mine.py") == (tmp_path / "mine.py").resolve()
    assert find_script(tmp_path / "mine.py") == (tmp_path / "mine.py").resolve()
    # From anywhere, a path within the workspace is found too.
    assert find_script("distlab/scripts/ddp.py") == find_script("ddp")


def test_a_file_here_does_not_hide_a_lessons_script(tmp_path, monkeypatch):
    (tmp_path / "ddp").write_text("")
    monkeypatch.chdir(tmp_path)
    assert find_script("ddp").parent.name == "scripts"


@pytest.mark.parametrize(
    ("asked", "hint"),
    [
        ("dpd", "did you mean ddp?"),
        ("singel.py", "did you mean single?"),
        ("zzzzzz", "the lessons' scripts are "),
        ("", "the lessons' scripts are "),
        ("/no/such/folder/train.py", "the lessons' scripts are "),
        (".", "the lessons' scripts are "),
    ],
)
def test_a_script_that_is_not_there(asked, hint):
    with pytest.raises(ScriptError) as caught:
        find_script(asked)
    assert f"no script {asked!r}, neither by name nor as a file: {hint}" in str(caught.value)


def test_a_function_of_a_notebook():
    def train() -> None:
        pass

    with pytest.raises(ScriptError, match=r"run\(\) starts files: ranks on another host cannot see train"):
        run(train)


def test_an_unknown_launcher():
    with pytest.raises(ScriptError, match="launcher 'teleport' is unknown: use torchrun"):
        run("ddp", launcher="teleport")
    assert "torchrun" in RUNS_BY


def test_malformed_hosts_start_nothing(monkeypatch):
    from distlab.launch import session

    monkeypatch.setattr(session, "Connection", lambda *_: pytest.fail("something was started"))
    for hosts in ("node1:0", "node1:2,node1:2", []):
        with pytest.raises(ValueError):
            run("ddp", hosts=hosts)


def test_options():
    options = {"epochs": 1, "lr_scaling": False, "resume": True, "data": None, "name": "two words", "lr": 0.1}
    assert to_arguments(options) == [
        "--epochs",
        "1",
        "--no-lr-scaling",
        "--resume",
        "--name",
        "two words",
        "--lr",
        "0.1",
    ]
