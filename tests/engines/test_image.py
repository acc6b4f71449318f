"""The image: what is in it, and what must not be."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from containers import ROOT, docker

pytestmark = pytest.mark.timeout(180)


def inside(image: str, command: str, *options: str) -> str:
    """What a shell in a new container prints."""
    return docker("run", "--rm", *options, image, "sh", "-c", command).stdout.strip()


@pytest.fixture(scope="module")
def built(image) -> dict:
    return json.loads(docker("inspect", image).stdout)[0]


def test_hadolint_has_nothing_to_say():
    hadolint = Path(sys.executable).with_name("hadolint")
    said = subprocess.run([hadolint, ROOT / "Dockerfile"], capture_output=True, text=True)
    assert said.returncode == 0, said.stdout + said.stderr


def test_labels_tell_the_versions_inside(image, built):
    labels = built["Config"]["Labels"]
    names = [name.partition(".")[2] for name in labels if name.startswith("distlab.")]
    asked = "import sys, importlib.metadata as m; print(*(m.version(name) for name in sys.argv[1:]))"
    versions = docker("run", "--rm", image, "python", "-c", asked, "distlab", *names).stdout.split()
    assert versions == [labels["org.opencontainers.image.version"], *(labels[f"distlab.{name}"] for name in names)]
    assert {"torch", "torchvision", "jupyterlab"} <= set(names)


def test_versions_are_the_pinned_ones(image):
    pinned = dict(re.findall(r"^([\w.-]+)==(\S+)$", (ROOT / "constraints.txt").read_text(), re.MULTILINE))
    found = docker("run", "--rm", image, "python", "-m", "pip", "freeze", "--exclude-editable").stdout
    installed = dict(re.findall(r"^([\w.-]+)==(\S+)$", found, re.MULTILINE))
    assert {name: version for name, version in installed.items() if pinned.get(name) != version} == {}
    assert len(installed) > 50


def test_no_compiler_no_cache_no_keys(image):
    for program in ("gcc", "g++", "cc", "make", "ld"):
        assert not inside(image, f"command -v {program} || true"), program
    assert not inside(image, "find / -xdev -path '*/.cache/pip*' 2>/dev/null | head")
    assert not inside(image, "find /var/cache/apt /var/lib/apt/lists -type f -not -name lock 2>/dev/null | head")
    keys = "find / -xdev \\( -name 'ssh_host_*' -o -name 'id_*' -path '*ssh*' -o -name '*_key' \\) 2>/dev/null | head"
    assert not inside(image, keys)
    assert not inside(image, "grep -rl 'PRIVATE KEY' /etc /home /shared /workshop /workspace 2>/dev/null | head")


def test_nothing_becomes_root(image):
    assert not inside(image, "find / -xdev -type f -perm /6000 2>/dev/null | head")
    assert "Capabilities" not in inside(image, "getcap -r / 2>/dev/null || true")


def test_no_secret_in_a_layer_or_in_the_settings(image, built):
    layers = docker("history", "--no-trunc", "--format", "{{.CreatedBy}}", image).stdout
    for text in (layers, json.dumps(built["Config"])):
        assert not re.search(r"(?i)(token|password|secret|apikey)=\S", text)


def test_settings_for_gpu_user_and_health(built):
    config = built["Config"]
    environment = dict(line.split("=", 1) for line in config["Env"])
    assert environment["NVIDIA_DRIVER_CAPABILITIES"] == "compute,utility"
    assert environment["NVIDIA_VISIBLE_DEVICES"] == "all"
    assert config["User"] == "1000:1000"
    assert config["Healthcheck"]["Test"][-1] == "http://127.0.0.1:8888/api"
    assert config["WorkingDir"] == "/workspace"


def test_user_is_settable_when_built(image):
    docker("build", "--build-arg", "UID=4321", "--build-arg", "GID=4322", *base(), "-t", "distlab-test-user", ".")
    try:
        assert inside("distlab-test-user", "id -u; id -g; id -un; stat -c %u:%g /workspace").split() == [
            *("4321", "4322", "attendee"),
            "4321:4322",
        ]
    finally:
        docker("rmi", "distlab-test-user")


def base() -> list[str]:
    return ["--build-arg", f"BASE={os.environ['WORKSHOP_BASE']}"] if "WORKSHOP_BASE" in os.environ else []


def test_user_is_settable_when_started(image):
    """Another id has a name, a home and a workspace to write in."""
    told = inside(image, "id -un; touch $HOME/mine /shared/ours && echo wrote; getent passwd 0", "--user", "5678:5679")
    assert told.splitlines() == ["owner", "wrote", "root:x:0:0:root:/root:/bin/bash"]


def test_other_commands_run_as_given(image):
    """The seed's way: `docker run IMAGE jupyter-lab ...`, and a doctor without a second host."""
    assert inside(image, "jupyter-lab --version") == "4.6.6"
    hosts = docker("run", "--rm", image, "distlab", "hosts").stdout
    assert "simulated on this machine" in hosts
    # The cut-off is a host's name, which is random in a container alone.
    hosts = docker("run", "--rm", "--hostname", "node1", image, "distlab", "hosts", check=False)
    assert "node2 does not resolve: is its container up?" in hosts.stderr


def test_root_is_refused(image):
    said = docker("run", "--rm", "--user", "0:0", image, check=False)
    assert said.returncode == 2
    assert "as a normal user" in said.stderr
