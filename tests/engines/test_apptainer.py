"""The Singularity file: built by the real Apptainer, run by an ordinary user from a read-only image."""

import json
import re
import shutil
import tempfile
import tomllib
from pathlib import Path

import mechanisms
import pytest
from cluster import Cluster, engine, last_stage
from containers import ROOT, answer
from notebook_api import execute

# Whichever test comes first waits until the image is built.
pytestmark = pytest.mark.timeout(1700)

UNWRITABLE = "/workspace cannot be written"
# What the session of some user on some host may have set.
FOREIGN = {
    "PYTHONPATH": "/nowhere/packages",
    "PYTHONHOME": "/nowhere/python",
    "VIRTUAL_ENV": "/nowhere/venv",
    "XDG_RUNTIME_DIR": "/run/user/4711",
    "JUPYTER_RUNTIME_DIR": "/run/user/4711/jupyter",
    "TMPDIR": "/scratch/4711",
    "LC_ALL": "de_DE.UTF-8",
    "SHELL": "/usr/bin/fish",
    "SLURM_JOB_NODELIST": "nowhere[1-4]",
    "DISTLAB_IMAGE": "1",
}


@pytest.fixture(scope="module")
def cluster():
    if not engine():
        pytest.skip("there is no apptainer command; tests/engines/setup/apptainer.sh brings one")
    with tempfile.TemporaryDirectory(prefix="distlab-cluster-") as folder:
        made = Cluster(Path(folder))
        made.build()
        yield made


@pytest.fixture(scope="module")
def bound(cluster) -> tuple[str, str]:
    """The options that bind a workspace, which was copied out of the image as its help says."""
    cluster.workspace.parent.mkdir()
    cluster.give(cluster.workspace.parent)
    cluster.apptainer("exec", cluster.sif, "cp", "-r", "/workspace", cluster.workspace.parent)
    return "--bind", f"{cluster.workspace}:/workspace"


def test_from_docker_hub_unless_told_otherwise(cluster):
    """Each stage has defaults of its own, and each is asked for one that the other does not give."""
    # The user may not look into the folder that the repository is in.
    definition = Path(shutil.copy(ROOT / "Singularity", cluster.home))
    for argument, told in (("BOOTSTRAP=localimage", "debian:bookworm-slim"), ("BASE=no:image:name", "parse reference")):
        words = ("build", "--build-arg", argument, cluster.home / "none.sif", definition)
        tried = cluster.apptainer(*words, check=False)
        assert tried.returncode and told in tried.stderr, tried.stderr


def stages(dockerfile: str) -> dict[str, tuple[str, list[list[str]]]]:
    """A Dockerfile's named stages: what each begins from, and its instructions as words."""
    found = {}
    for text in re.split(r"^FROM ", dockerfile, flags=re.MULTILINE)[1:]:
        first, *rest = text.splitlines()
        start, _, name = first.partition(" AS ")
        found[name] = start, [line.split() for line in rest if line[:1].isupper()]
    return found


def landing(source: str, target: str, docker: bool) -> tuple[str, str]:
    """Where a copied file or folder lies: Docker copies what is in a folder, Apptainer the folder."""
    inside = target.endswith("/") and not (docker and (ROOT / source).is_dir())
    return source, target + Path(source).name if inside else target


def sections(definition: str) -> dict[str, list[list[str]]]:
    """The sections of one stage of a definition file: the words of each of their lines."""
    named = re.split(r"^%(.+)\n", definition, flags=re.MULTILINE)[1:]
    return {
        name: [line.split() for line in body.splitlines() if line.strip() and not line.strip().startswith("#")]
        for name, body in zip(named[::2], named[1::2], strict=True)
    }


def check_same_first_stage(dockerfile: str, definition: str) -> None:
    """Docker's stage `installed` is what a definition's last stage begins from.

    Raises:
        AssertionError: they differ in what they start from, copy or run.
    """
    ours, (first, last) = stages(dockerfile), map(sections, re.split(r"^Bootstrap: .+\n", definition, flags=re.M)[1:])
    assert (ours["python"][0], ours["horovod"][0], ours["system"][0]) == ("${BASE}", "python", "${BASE}")
    words = ours["python"][1] + ours["horovod"][1]
    copied = [landing(source, copy[-1], True) for copy in words if copy[0] == "COPY" for source in copy[1:-1]]
    assert sorted(copied) == sorted(landing(source, target, False) for source, target in first["files"])
    assert [run[1:] for run in words if run[0] == "RUN"] == [line for line in first["post"] if line[0] != "umask"]
    brought = [copy[2] for copy in ours["installed"][1]]
    assert [[place] for place in brought] == last["files from python"]
    assert ours["installed"] == ("system", [["COPY", "--from=horovod", place, place] for place in brought])
    system = [["COPY", "image/system.sh", "/workshop/image/"], ["RUN", "/workshop/image/system.sh"]]
    assert ours["system"][1] == system
    assert system[0][1:] in last["files"] and [system[1][1]] in last["post"]


DOCKERFILE, DEFINITION = (ROOT / "Dockerfile").read_text(), (ROOT / "Singularity").read_text()


def test_its_first_stage_is_that_of_the_docker_image():
    """So one root file system may serve both, and the packages be fetched once."""
    check_same_first_stage(DOCKERFILE, DEFINITION)
    rest = last_stage(DEFINITION)
    assert rest.startswith("Bootstrap: {{ BOOTSTRAP }}\nFrom: {{ BASE }}\nStage: final\n")
    assert DEFINITION.endswith(rest.partition("%files\n")[2])
    assert list(sections(rest)) == [
        *("arguments", "files", "post", "environment", "runscript", "test", "labels", "help")
    ]


@pytest.mark.parametrize(
    ("mine", "changed"),
    [
        ("    constraints.txt /workshop/\n", ""),
        ("    /workshop/image/horovod.sh\n", "    /workshop/image/horovod.sh --other\n"),
        ("    image/wheels /workshop/image/\n", "    image/wheels /workshop/\n"),
        ("    /opt/venv\n    /workshop\n", "    /opt/venv\n"),
    ],
    ids=["a file less", "another script", "another place", "less brought along"],
)
def test_another_first_stage_would_be_noticed(mine, changed):
    assert DEFINITION.count(mine) == 1
    with pytest.raises(AssertionError):
        check_same_first_stage(DOCKERFILE, DEFINITION.replace(mine, changed))


@pytest.mark.parametrize(
    ("mine", "changed"),
    [
        ("FROM ${BASE} AS python", "FROM system AS python"),
        ("RUN /workshop/image/python.sh\n", "RUN /workshop/image/python.sh\nRUN pip install more\n"),
        ("COPY --from=horovod /workshop /workshop\n", "COPY --from=python /workshop /workshop\n"),
        ("COPY image/wheels /workshop/image/wheels\n", ""),
    ],
    ids=["another start", "one more command", "from another stage", "a file less"],
)
def test_another_dockerfile_would_be_noticed(mine, changed):
    assert DOCKERFILE.count(mine) == 1
    with pytest.raises(AssertionError):
        check_same_first_stage(DOCKERFILE.replace(mine, changed), DEFINITION)


def test_its_own_test_passes(cluster):
    said = cluster.apptainer("test", cluster.sif).stdout
    assert "torch 2.14.1" in said
    assert "2 hosts, 4 slots (simulated on this machine)" in said


def test_its_help_has_the_documented_commands(cluster):
    said = cluster.apptainer("run-help", cluster.sif).stdout
    assert "apptainer exec workshop.sif cp -r /workspace ~/workshop/" in said
    assert "jupyter-lab --no-browser --ip=127.0.0.1 --port=8888 --notebook-dir=/workspace" in said


def test_labels_tell_the_versions_inside_and_these_are_the_pinned_ones(cluster):
    pinned = dict(re.findall(r"^([\w.-]+)==(\S+)$", (ROOT / "constraints.txt").read_text(), re.MULTILINE))
    said = cluster.inside("python -m pip freeze --exclude-editable")
    installed = dict(re.findall(r"^([\w.-]+)==(\S+)$", said, re.MULTILINE))
    assert len(installed) > 50
    assert {name: version for name, version in installed.items() if pinned.get(name) != version} == {}
    labels = json.loads(cluster.apptainer("inspect", "--json", cluster.sif).stdout)["data"]["attributes"]["labels"]
    for name in ("torch", "torchvision", "jupyterlab"):
        assert labels[f"distlab.{name}"] == pinned[name]
    version = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
    assert labels["org.opencontainers.image.version"] == version


def test_its_workspace_is_that_of_the_repository(cluster):
    """Singularity names what it copies, so something new may be forgotten, and something private may slip in."""
    private = ("runs", "__pycache__", ".ipynb_checkpoints", "distlab.egg-info")
    here = {
        str(path.relative_to(ROOT / "workspace"))
        for path in (ROOT / "workspace").rglob("*")
        if path.is_file() and not set(path.parts) & set(private)
    }
    inside = cluster.inside("cd /workspace && find . -type f -not -path '*/__pycache__/*'").replace("./", "")
    assert set(inside.splitlines()) == here


def test_no_compiler_no_cache(cluster):
    assert not cluster.inside("for name in gcc g++ cc c++ make ld; do command -v $name; done; true")
    # Without the user namespace, an Apptainer that is setuid would keep root's home shut.
    assert not cluster.inside("ls /root && find / -xdev -path '*/.cache/*' 2>/dev/null", "--userns")
    assert not cluster.inside("find /var/cache/apt /var/lib/apt/lists -type f -not -name lock 2>/dev/null; true")
    assert not cluster.inside("find / -xdev -name 'ssh_host_*' 2>/dev/null; true")


def test_its_user_is_the_caller_and_cannot_write_it(cluster):
    told = cluster.inside("whoami; id -u; grep CapEff /proc/self/status").split()
    assert told == [cluster.user.pw_name, str(cluster.user.pw_uid), "CapEff:", "0" * 16]
    for place in ("/opt", "/opt/venv/lib/python3.11/site-packages", "/etc", "/workspace"):
        tried = cluster.apptainer("exec", cluster.sif, "touch", f"{place}/mine", check=False)
        assert "Read-only file system" in tried.stderr, place


def test_doctor_is_content(cluster, bound):
    cluster.apptainer("exec", cluster.sif, "distlab", "data", DISTLAB_OFFLINE="1")
    said = json.loads(cluster.inside("distlab doctor --quick --json", *bound))
    states = {check["name"]: check["state"] for check in said["checks"]}
    assert said["ok"], said
    # Memory, disk, network and others' runs are this machine's.
    ours = ("Python", "torch", "backends", "hosts", "shared memory", "workspace", "data", "lessons")
    assert {name: states[name] for name in ours} == dict.fromkeys(ours, "fine")


def test_what_the_host_has_set_stays_outside(cluster):
    # The home is there inside, and so is what pip and Jupyter of another Python left in it.
    packages = cluster.home / ".local" / "lib" / "python3.11" / "site-packages"
    kernel = cluster.home / ".local" / "share" / "jupyter" / "kernels" / "python3"
    for folder in (packages, kernel):
        folder.mkdir(parents=True)
    (kernel / "kernel.json").write_text(json.dumps({"argv": ["/bin/false"], "display_name": "other"}))
    cluster.give(cluster.home)
    told = cluster.inside("env", **FOREIGN).splitlines()
    assert not [name for name, value in FOREIGN.items() if f"{name}={value}" in told]
    for python in ("ipython", "python", "/usr/bin/python3"):
        path = cluster.inside(f"{python} -c 'import sys; print(*sys.path)'", **FOREIGN)
        assert "/lib/python3" in path and "/nowhere" not in path and str(cluster.home) not in path
    assert cluster.inside("mktemp", **FOREIGN)
    assert "simulated on this machine" in cluster.inside("distlab hosts", **FOREIGN)
    kernels = json.loads(cluster.inside("jupyter kernelspec list --json", **FOREIGN))["kernelspecs"]
    assert kernels["python3"]["resource_dir"].startswith("/opt/venv/")


def test_a_login_shell_finds_the_environment(cluster):
    assert cluster.inside("bash -l -c 'command -v distlab python'").split() == [
        "/opt/venv/bin/distlab",
        "/opt/venv/bin/python",
    ]


def ranks_of(result: dict) -> list[tuple[str, int]]:
    return [(rank["host"], rank["rank"]) for rank in result["ranks"]]


FOUR = [("node1", 0), ("node1", 1), ("node2", 2), ("node2", 3)]


def test_it_trains_in_a_bound_workspace(cluster, bound):
    result = cluster.train(*bound)
    assert result["ok"] and ranks_of(result) == FOUR
    runs = list((cluster.workspace / "runs").glob("*-ddp-*/run.json"))
    assert [run.stat().st_uid for run in runs] == [cluster.user.pw_uid]


def test_it_trains_where_nothing_but_home_can_be_written(cluster):
    assert "Read-only" in cluster.inside("touch /tmp/mine 2>&1 || true", "--no-mount", "tmp")
    result = cluster.train("--no-mount", "tmp")
    assert result["ok"] and ranks_of(result) == FOUR
    assert len(list((cluster.home / "distlab" / "runs").glob("*-ddp-*/run.json"))) == 1


def test_an_exercise_is_checked_in_a_read_only_workspace(cluster):
    done = cluster.inside("distlab check ddp --file /workspace/solutions/ddp.py", "--no-mount", "tmp")
    assert "✗" not in done


def test_jupyterlab_as_documented(cluster, bound):
    """The seed's command, on a host whose session has what is missing in the image."""
    words = "jupyter-lab --no-browser --ip=127.0.0.1 --port=8888 --notebook-dir=/workspace".split()
    with cluster.lab("run", "--nv", *bound, cluster.sif, *words, **FOREIGN) as (url, token, said):
        assert UNWRITABLE not in said
        assert answer(f"{url}/api/contents")[0] == 403
        assert answer(f"{url}/api/contents?token=guessed")[0] == 403
        status, contents = answer(f"{url}/api/contents?token={token}")
        assert status == 200
        assert "Start_Here.ipynb" in [file["name"] for file in contents["content"]]
        written = {"type": "file", "format": "text", "content": "kept"}
        assert answer(f"{url}/api/contents/mine.txt?token={token}", "PUT", written)[0] == 201
        mechanisms.write(cluster.workspace)
        done, _ = execute(url, token, mechanisms.NAME, 170)
        assert done.errors == []
        mechanisms.assert_all_hold(done.claims)
    assert (cluster.workspace / "mine.txt").read_text() == "kept"


def test_without_words_it_opens_the_first_page(cluster):
    with cluster.lab("run", cluster.sif) as (url, token, said):
        assert UNWRITABLE in said
        assert answer(f"{url}/api/contents?token=guessed")[0] == 403
        assert answer(f"{url}/api/contents/Start_Here.ipynb?token={token}")[0] == 200
