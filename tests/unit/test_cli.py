"""The command `distlab`: verbs, exit status, JSON, and short errors."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

DISTLAB = Path(sys.executable).with_name("distlab")


def distlab(*words: str, **env: str) -> subprocess.CompletedProcess:
    return subprocess.run(
        [DISTLAB, *words], capture_output=True, text=True, env={**os.environ, **env}, timeout=120, check=False
    )


def test_the_command_does_not_import_torch():
    code = "import sys; import distlab.cli, distlab.lesson, distlab.doctor; print('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "False\n"


def test_hosts_as_text_and_json():
    said = distlab("hosts")
    assert said.returncode == 0
    assert "node1: 2 slots" in said.stdout and "node2: 2 slots" in said.stdout
    found = json.loads(distlab("hosts", "--json").stdout)
    assert [(host["name"], host["slots"]) for host in found["hosts"]] == [("node1", 2), ("node2", 2)]


@pytest.mark.parametrize(
    ("words", "part"),
    [
        (["run", "dpd"], "did you mean ddp?"),
        (["run", "ddp", "--hosts", "node1:x"], "'x' is not a number of slots"),
        (["run", "ddp", "--launcher", "teleport"], "launcher 'teleport' is unknown: use torchrun"),
        (["run", "ddp", "--epochs", "1"], "unknown argument --epochs; the script's own arguments follow --"),
        (["check", "dpd"], "ddp"),
        (["bench", "nothing"], "no benchmark 'nothing': there are containers, ddp, horovod, launch, pipeline, ranks"),
        (["fly"], "invalid choice: 'fly'"),
    ],
)
def test_bad_input_is_one_short_error(words, part):
    said = distlab(*words)
    assert said.returncode == 2
    assert part in said.stderr
    assert "Traceback" not in said.stderr
    assert said.stdout == ""


def test_an_error_before_the_start_is_json_too():
    said = distlab("run", "nowhere.py", "--json")
    assert said.returncode == 2
    assert json.loads(said.stdout)["ok"] is False
    assert "no script 'nowhere.py'" in json.loads(said.stdout)["error"]


@pytest.mark.timeout(120)
def test_run_ends_with_one_json_line(tmp_path):
    said = distlab("run", "env_report", "--hosts", "node1:2,node2:2", "--json", DISTLAB_RUNS=str(tmp_path))
    assert said.returncode == 0, said.stderr
    [line] = said.stdout.splitlines()
    result = json.loads(line)
    assert result["ok"] is True and result["error"] is None
    assert [(end["rank"], end["host"], end["how"]) for end in result["ranks"]] == [
        (0, "node1", "completed"),
        (1, "node1", "completed"),
        (2, "node2", "completed"),
        (3, "node2", "completed"),
    ]
    assert [result["metrics"][str(rank)][0]["WORLD_SIZE"] for rank in range(4)] == [4] * 4
    assert "node1:0 | " in said.stderr
    assert json.loads((Path(result["folder"]) / "run.json").read_text()) == result


@pytest.mark.timeout(120)
def test_the_exit_status_is_the_jobs(tmp_path):
    script = tmp_path / "seven.py"
    script.write_text("import sys\nsys.exit(7)\n")
    said = distlab("run", str(script), "--hosts", "node1:1", "--json", DISTLAB_RUNS=str(tmp_path))
    assert said.returncode == 7
    assert json.loads(said.stdout)["ok"] is False
    assert "rank 0 on node1 ended with status 7" in said.stderr


@pytest.mark.timeout(180)
def test_doctor_in_json_finds_nothing_wrong_here(tmp_path):
    said = distlab("doctor", "--json", DISTLAB_RUNS=str(tmp_path))
    diagnoses = json.loads(said.stdout)
    wrong = [check for check in diagnoses["checks"] if check["state"] == "wrong"]
    assert wrong == [] and diagnoses["ok"] is True and said.returncode == 0
    ranks = next(check for check in diagnoses["checks"] if check["name"] == "ranks")
    assert ranks["text"].startswith("4 ranks met on node1 and node2")


def test_doctor_says_what_is_wrong_and_exits_1(tmp_path):
    below_a_file = tmp_path / "file"
    below_a_file.write_text("")
    said = distlab("doctor", "--quick", DISTLAB_RUNS=str(below_a_file / "runs"), DISTLAB_HOSTS="node1:0")
    assert said.returncode == 1
    assert "cannot write the run folder" in said.stdout
    assert "is not a number of slots" in said.stdout
    assert "2 of 14 checks went wrong" in said.stdout
