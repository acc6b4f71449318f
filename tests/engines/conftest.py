"""Real engines. Where one is missing the test says so and is skipped, which fails in CI."""

import os
import shutil
import subprocess
import tomllib

import containers
import pytest

IMAGE = "distlab"
BUILD_SECONDS = 1500
# Docker 20, as Debian 12 has it, would else build without the layers that compose has built.
os.environ["DOCKER_BUILDKIT"] = "1"


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Whichever test needs the image first waits until it is built."""
    first = next((item for item in items if "image" in item.fixturenames), None)
    if first:
        first.add_marker(pytest.mark.timeout(BUILD_SECONDS + 300), append=False)


@pytest.fixture(scope="session")
def engine() -> str:
    """A Docker engine that answers, with Compose v2: its version."""
    if not shutil.which("docker"):
        pytest.skip("there is no docker command")
    asked = subprocess.run(["docker", "version", "--format", "{{.Server.Version}}"], capture_output=True, text=True)
    if asked.returncode:
        pytest.skip(f"no Docker engine answers: {asked.stderr.strip()}")
    if subprocess.run(["docker", "compose", "version"], capture_output=True).returncode:
        pytest.skip("docker has no compose plugin")
    return asked.stdout.strip()


@pytest.fixture(scope="session")
def image(engine) -> str:
    """The real Dockerfile, built by the real compose file, on the base that WORKSHOP_BASE names."""
    version = tomllib.loads((containers.ROOT / "pyproject.toml").read_text())["project"]["version"]
    environment = {**os.environ, "WORKSHOP_IMAGE": IMAGE, "WORKSHOP_VERSION": version}
    containers.docker("compose", "build", timeout=BUILD_SECONDS, env=environment)
    return IMAGE


@pytest.fixture(scope="session")
def project(image, tmp_path_factory):
    """node1 and node2, up and healthy, with a workspace that belongs to somebody else than root."""
    started = containers.Project(f"distlab-test-{os.getpid()}", tmp_path_factory.mktemp("room"))
    try:
        started.seconds = started.up()
        yield started
    finally:
        started.down()
