"""The compose files, as Compose reads them."""

import json
import os
import re

import pytest
from containers import ROOT, docker

BASE, GPU, SUBNET = (f"docker-compose{part}.yml" for part in ("", ".gpu", ".subnet"))


def read(*files: str, **settings: str) -> dict:
    """The files merged, with these settings and no .env."""
    words = [word for file in files for word in ("-f", file)]
    kept = ("PATH", "HOME")
    env = {name: os.environ[name] for name in kept} | settings
    done = docker("compose", "--env-file", "/dev/null", *words, "config", "--format", "json", env=env)
    return json.loads(done.stdout)


def published(service: dict) -> set[tuple[str, str, int]]:
    return {(port["host_ip"], port["published"], port["target"]) for port in service["ports"]}


def test_the_defaults(engine):
    services = read(BASE)["services"]
    assert set(services) == {"node1", "node2"}
    assert published(services["node1"]) == {("127.0.0.1", "8000", 8888), ("127.0.0.1", "8006", 6006)}
    assert published(services["node2"]) == {("127.0.0.1", "9000", 8888), ("127.0.0.1", "9006", 6006)}
    for name, service in services.items():
        assert service["hostname"] == name
        assert service["user"] == "1000:1000"
        assert service["cap_drop"] == ["ALL"] and "cap_add" not in service and not service.get("privileged")
        assert service["security_opt"] == ["no-new-privileges:true"]
        assert (int(service["shm_size"]), service["init"], service["restart"]) == (1 << 30, True, "unless-stopped")
        assert set(service["networks"]) == {"backend"}
        assert "depends_on" not in service
        assert service["environment"]["WORKSHOP_TOKEN"] == ""


def test_the_network_is_the_engines_choice_or_ours(engine):
    assert "config" not in read(BASE)["networks"]["backend"].get("ipam", {})
    chosen = read(BASE, SUBNET, WORKSHOP_SUBNET="10.123.0.0/24")
    assert chosen["networks"]["backend"]["ipam"]["config"] == [{"subnet": "10.123.0.0/24"}]


def test_every_setting_is_in_the_example():
    text = "".join((ROOT / file).read_text() for file in (BASE, GPU, SUBNET))
    used = set(re.findall(r"\$\{(\w+)", text))
    documented = set(re.findall(r"^#?([A-Z][A-Z0-9_]+)=", (ROOT / ".env.example").read_text(), re.MULTILINE))
    assert used <= documented, used - documented
    assert documented - used == {"COMPOSE_FILE"}


def test_the_example_shows_the_defaults(engine):
    """A .env that has every line of the example changes nothing but what has no default."""
    example = (ROOT / ".env.example").read_text()
    settings = dict(re.findall(r"^#([A-Z][A-Z0-9_]+)=(.*)$", example, re.MULTILINE))
    for chosen in ("COMPOSE_FILE", "WORKSHOP_SUBNET"):
        del settings[chosen]
    assert read(BASE, GPU, **settings) == read(BASE, GPU)


@pytest.mark.parametrize("gpus", [{}, {"NODE1_GPUS": "0", "NODE2_GPUS": "0"}])
def test_gpus(engine, gpus):
    services = read(BASE, GPU, **gpus)["services"]
    wanted = {"node1": gpus.get("NODE1_GPUS", "0,1"), "node2": gpus.get("NODE2_GPUS", "2,3")}
    for name, service in services.items():
        assert service["runtime"] == "nvidia"
        assert service["environment"]["NVIDIA_VISIBLE_DEVICES"] == wanted[name]
        assert service["ulimits"] == {"memlock": -1, "stack": 67108864}
    # Where nvidia is the engine's default runtime, the plain file must still mean no GPU.
    assert {service["environment"]["NVIDIA_VISIBLE_DEVICES"] for service in read(BASE)["services"].values()} == {"void"}
