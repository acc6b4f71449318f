"""The picture of the hosts: ranks counted through, devices named, and a text for readers who cannot see the picture."""

import base64
import re
import subprocess
import sys
import xml.etree.ElementTree as ET
from dataclasses import dataclass

import pytest
from distlab.drawing import slots
from distlab.hosts import Host, HostList


def host(name: str, ranks: int, gpus=(), cores: int | None = 1, kind: str = "simulated") -> Host:
    return Host(name, ranks, kind, "127.0.0.1", gpus, cores)


def texts(found: HostList) -> list[str]:
    return [text.text for text in ET.fromstring(slots.drawing(found)).iter("{http://www.w3.org/2000/svg}text")]


def test_ranks_are_counted_over_all_hosts():
    found = HostList([host("node1", 2), host("node2", 3)], "simulated on this machine")
    assert [text for text in texts(found) if text.startswith("rank ")] == [f"rank {rank}" for rank in range(5)]


def test_a_slot_names_its_own_gpu_or_the_one_it_shares():
    found = HostList([host("node1", 2, ("0", "1")), host("node2", 2, ("2",))], "here")
    assert [text for text in texts(found) if text.startswith("GPU ")] == ["GPU 0", "GPU 1", "GPU 2", "GPU 2"]
    assert "1 GPU, shared, 1 core" in texts(found)


@dataclass
class Case:
    host: Host
    line: str


@pytest.mark.parametrize(
    "case",
    [
        Case(host("a", 2), "2 ranks on 1 core, no GPU"),
        Case(host("a", 1, cores=8), "1 rank on 8 cores, no GPU"),
        Case(host("a", 2, ("0", "1"), 4), "2 GPUs, 4 cores"),
        Case(host("a", 4, None, None, "ssh"), "all GPUs and cores of that machine"),
    ],
    ids=lambda case: case.line,
)
def test_what_ranks_share_in_words(case):
    assert slots.shared_line(case.host) == case.line


def test_alternative_text_gives_every_host_its_ranks():
    found = HostList([host("node1", 2), host("node2", 1, kind="ssh", gpus=None, cores=None)], "DISTLAB_HOSTS")
    alt = re.search(r'alt="([^"]*)"', slots.picture(found))[1]
    assert "node1 (simulated on this machine) takes ranks 0 to 1" in alt
    assert "node2 (another machine, reached by ssh) takes rank 2" in alt


def test_every_box_lies_inside_the_drawing():
    found = HostList([host(f"node{index}", 5) for index in range(1, 4)], "here")
    root = ET.fromstring(slots.drawing(found))
    width, height = float(root.get("width")), float(root.get("height"))
    boxes = [box for box in root.iter("{http://www.w3.org/2000/svg}rect") if box.get("x")]
    assert len(boxes) == 3 + 15
    for box in boxes:
        assert float(box.get("x")) + float(box.get("width")) <= width
        assert float(box.get("y")) + float(box.get("height")) <= height


def test_odd_names_cannot_break_the_page():
    found = HostList([host('<b>"x"', 1)], "<i>")
    page = slots.picture(found)
    assert "<b>" not in page and "<i>" not in page
    packed = re.search(r"base64,([^\"]+)", page)[1]
    assert "&lt;b&gt;" in base64.b64decode(packed).decode()


def test_drawing_needs_neither_torch_nor_matplotlib():
    code = "import sys, distlab; distlab.hosts()._repr_html_(); print({'torch', 'matplotlib'} & set(sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout.strip() == "set()"
