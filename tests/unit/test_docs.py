"""Pages say what is there: links lead somewhere, verbs exist, versions agree, and no page is about one machine."""

import argparse
import json
import re
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import unquote

import distlab
import pytest
import yaml
from distlab import cli

ROOT = Path(__file__).resolve().parents[2]
NOT_OURS = {".git", ".venv", "build", "node_modules", "runs", "seats", ".ipynb_checkpoints", ".pytest_cache"}

FENCE = re.compile(r"^(```|~~~)(\w*)[^\n]*\n(.*?)^\1 *$", re.MULTILINE | re.DOTALL)
INDENTED = re.compile(r"(?:(?<=\n\n)|\A)(?: {4}[^\n]*\n?)(?:(?: {4}[^\n]*|)(?:\n|\Z))*")
INLINE = re.compile(r"(`+)(.+?)\1", re.DOTALL)
LINK = re.compile(r"!?\[(?:[^\[\]]|\[[^\]]*\])*\]\(\s*<?([^)\s>]+)>?(?:\s+\"[^\"]*\")?\s*\)")
REFERENCE = re.compile(r"^\[[^\]]+\]: *(\S+)", re.MULTILINE)
HTML = re.compile(r"<(?:a|img)\b[^>]*?\b(?:href|src)=\"([^\"]+)\"")
ELSEWHERE = re.compile(r"[a-z][a-z+.-]*:", re.IGNORECASE)

# Written so that this file names none either.
REGISTRY = re.compile(r"\b(?:pypi|pythonhosted|npmjs|anaconda|conda|ghcr|quay|crates)\.(?:org|io|com)\b", re.IGNORECASE)
MACHINE_PATH = re.compile(r"(?<![\w.~$}])/(?:home|root|work|Users|builds)/[\w.-]+")


# --- reading pages --------------------------------------------------------------------------------


def pages() -> list[Path]:
    """Every page of the repository, and every notebook."""
    found = (path for pattern in ("*.md", "*.ipynb") for path in ROOT.rglob(pattern))
    return sorted(path for path in found if not NOT_OURS & set(path.relative_to(ROOT).parts))


def text_of(path: Path) -> str:
    """A page's markdown: of a notebook, its markdown cells."""
    if path.suffix != ".ipynb":
        return path.read_text()
    cells = json.loads(path.read_text())["cells"]
    return "\n\n".join("".join(cell["source"]) for cell in cells if cell["cell_type"] == "markdown")


def without_code(text: str) -> str:
    """The text without blocks of code. Code within a line stays."""
    return INDENTED.sub("", FENCE.sub("", text))


def absent_files(text: str) -> list[str]:
    """Python files that a page names in passing and that are not there; names in capitals stand for any."""
    named = set(re.findall(r"`([\w.-]+(?:/[\w.-]+)+\.py)`", text))
    bases = (ROOT, ROOT / "workspace", ROOT / "workspace/distlab")
    there = {name for name in named for base in bases if (base / name).is_file()}
    return sorted(name for name in named - there if not re.search(r"\b[A-Z]{2,}\b", name))


def code_of(text: str) -> str:
    """All code of a page, a piece on each line, comments and pictures left out."""
    blocks = [block for _, language, block in FENCE.findall(text) if language != "mermaid"]
    rest = FENCE.sub("", text)
    blocks += [match[0] for match in INDENTED.finditer(rest)]
    blocks += [inline for _, inline in INLINE.findall(INDENTED.sub("", rest))]
    return "\n".join(re.sub(r"(^|\s)#.*", "", line) for block in blocks for line in block.splitlines())


def links(text: str) -> list[str]:
    """Where the links and pictures of a page lead."""
    # A link in code is an example; a heading's own code is no link.
    text = INLINE.sub(lambda match: re.sub(r"[^\n]", "x", match[0]), without_code(text))
    return [target for pattern in (LINK, REFERENCE, HTML) for target in pattern.findall(text)]


def headings(text: str) -> list[str]:
    """What a reader sees of each heading."""
    found = re.findall(r"^ {0,3}#{1,6} +(.+?)(?: +#+)? *$", without_code(text), re.MULTILINE)
    return [re.sub(r"!?\[([^\]]*)\]\([^)]*\)", r"\1", heading).replace("`", "").replace("*", "") for heading in found]


def github_anchors(text: str) -> set[str]:
    """The anchors that GitHub gives to a page's headings."""
    seen: dict[str, int] = {}
    anchors = set()
    for heading in headings(text):
        anchor = re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-")
        number = seen.get(anchor, 0)
        seen[anchor] = number + 1
        anchors.add(f"{anchor}-{number}" if number else anchor)
    return anchors


def jupyter_anchors(text: str) -> set[str]:
    """The anchors that JupyterLab gives to headings."""
    return {heading.replace(" ", "-") for heading in headings(text)}


# --- what can be wrong ----------------------------------------------------------------------------


def dead_links(page: Path, text: str, root: Path = ROOT) -> Iterator[str]:
    """Links of a page that lead nowhere, or out of the repository."""
    for link in links(text):
        if ELSEWHERE.match(link):
            continue
        name, _, anchor = unquote(link).partition("#")
        target = (page.parent / name).resolve() if name else page
        # JupyterLab's files begin at the folder of the notebooks: it does not open what is above.
        top = page.parent if page.suffix == ".ipynb" else root
        if not target.is_relative_to(top.resolve()):
            yield f"{link} leads out of {top.name}/"
        elif target != page and not target.exists():
            yield f"{link} is not there"
        elif anchor:
            known = text if target == page else text_of(target)
            github = page.suffix == target.suffix == ".md"
            if anchor not in (github_anchors(known) if github else jupyter_anchors(known)):
                yield f"{link}: there is no such heading"


def unknown_verbs(text: str, make: set[str], command: set[str], names: dict[str, set[str]]) -> Iterator[str]:
    """Verbs of make and of distlab that do not exist, and names that `distlab run` and others do not know."""
    code = code_of(text)
    for verb in re.findall(r"(?:^|[;&|(]) *(?:\w+=\S+ +)*make(?: +[A-Z]+=\S+)* +([a-z][a-z-]*)", code, re.MULTILINE):
        if verb not in make:
            yield f"make {verb}"
    for verb, name in re.findall(
        r"(?<![\w/.-])(?<!from )(?<!import )distlab ([a-z]+)\b(?: +([a-z]\w*)(?![\w.]))?", code
    ):
        if verb not in command:
            yield f"distlab {verb}"
        elif name and name not in names.get(verb, {name}):
            yield f"distlab {verb} {name}"


def make_verbs() -> set[str]:
    return set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))


def command_verbs() -> set[str]:
    (verbs,) = (action for action in cli._parser()._actions if isinstance(action, argparse._SubParsersAction))
    return set(verbs.choices)


def command_names() -> dict[str, set[str]]:
    """What may follow a verb of `distlab`, where that is a list of files."""
    folders = {"run": "workspace/distlab/scripts", "check": "workspace/exercises", "bench": "bench"}
    return {verb: {path.stem for path in (ROOT / folder).glob("*.py")} for verb, folder in folders.items()}


def of_one_machine(text: str) -> list[str]:
    """Hosts of package registries, which a room may not reach, and paths of whoever wrote the page."""
    return [match[0] for pattern in (REGISTRY, MACHINE_PATH) for match in pattern.finditer(text)]


def versions(files: dict[str, str]) -> dict[str, str | None]:
    """The version that each file states. CHANGELOG's is its newest that is released."""
    newest = re.search(r"^## (\d\S*)", files["CHANGELOG.md"], re.MULTILINE)
    return {
        "pyproject.toml": tomllib.loads(files["pyproject.toml"])["project"]["version"],
        "CITATION.cff": str(yaml.safe_load(files["CITATION.cff"])["version"]),
        "CHANGELOG.md": newest and newest[1],
    }


def licences(files: dict[str, str]) -> dict[str, str]:
    """The licence that each file states, as SPDX calls it."""
    return {
        "pyproject.toml": tomllib.loads(files["pyproject.toml"])["project"]["license"],
        "CITATION.cff": yaml.safe_load(files["CITATION.cff"])["license"],
        "LICENSE": {"BSD 3-Clause License": "BSD-3-Clause"}.get(files["LICENSE"].splitlines()[0], "another"),
    }


def stated(*names: str) -> dict[str, str]:
    return {name: (ROOT / name).read_text() for name in names}


def terms(glossary: str) -> list[tuple[str, str]]:
    """The terms of the glossary, and the lesson in which each is met."""
    return re.findall(r"^\*\*(.+?)\*\* \((\d+)\): ", glossary, re.MULTILINE)


# --- the pages as they are ------------------------------------------------------------------------


PAGES = pages()


def name_of(page: Path) -> str:
    return str(page.relative_to(ROOT))


def test_there_are_pages():
    names = {name_of(page) for page in PAGES}
    docs = {f"docs/{name}.md" for name in ("architecture", "developing", "reference", "troubleshooting")}
    assert {"README.md", "CONTRIBUTING.md", "workspace/Glossary.md", "workspace/Start_Here.ipynb"} | docs <= names
    assert sum(len(links(text_of(page))) for page in PAGES) > 80


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_links_and_anchors_lead_somewhere(page):
    assert list(dead_links(page, text_of(page))) == []


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_verbs_exist(page):
    assert list(unknown_verbs(text_of(page), make_verbs(), command_verbs(), command_names())) == []


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_files_that_are_named_are_there(page):
    assert absent_files(text_of(page)) == []


def test_verbs_are_looked_for():
    code = "\n".join(code_of(text_of(page)) for page in PAGES)
    wanted = {"make test-quick", "make preflight", "distlab doctor", "distlab bench", "distlab check ddp"}
    assert {words for words in wanted if words in code} == wanted


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_a_page_is_about_no_machine_in_particular(page):
    assert of_one_machine(text_of(page)) == []


def test_the_version_is_one():
    found = versions(stated("pyproject.toml", "CITATION.cff", "CHANGELOG.md"))
    assert set(found.values()) == {found["pyproject.toml"]}, found
    assert distlab.__version__ == found["pyproject.toml"], "pyproject.toml is newer than what is installed: make"


def test_images_and_the_package_state_no_version_of_their_own():
    version = versions(stated("pyproject.toml", "CITATION.cff", "CHANGELOG.md"))["pyproject.toml"]
    files = stated("Dockerfile", "Singularity", "docker-compose.yml", "Makefile", "workspace/distlab/__init__.py")
    assert [name for name, text in files.items() if version in text] == []
    assert 'org.opencontainers.image.version="${VERSION}"' in files["Dockerfile"]
    said = subprocess.run(["make", "-s", "-f", "-", "say"], input=PRINTS, text=True, capture_output=True, cwd=ROOT)
    assert said.stdout.strip() == version, said.stderr


# What compose sees when make starts it.
PRINTS = "include Makefile\nsay:\n\t@echo $$WORKSHOP_VERSION\n"


def test_the_licence_is_one():
    assert set(licences(stated("pyproject.toml", "CITATION.cff", "LICENSE")).values()) == {"BSD-3-Clause"}


def test_the_version_is_not_read_before_somebody_asks():
    code = "import sys, distlab; assert 'importlib.metadata' not in sys.modules; print(distlab.__version__)"
    said = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert said.stdout.strip() == distlab.__version__, said.stderr


def test_the_reference_has_every_variable_and_no_other():
    used = set()
    for folder, pattern in (("workspace/distlab", "*.py"), ("image", "*.sh")):
        for path in (ROOT / folder).rglob(pattern):
            used |= set(re.findall(r"\bDISTLAB_[A-Z_]*[A-Z]\b", path.read_text()))
    # A mark by which one experiment shows that a message ran code.
    used -= {"DISTLAB_UNPICKLED_BY"}
    documented = set(re.findall(r"\bDISTLAB_[A-Z_]*[A-Z]\b", (ROOT / "docs/reference.md").read_text()))
    assert documented == used


def test_the_reference_has_every_record_of_training():
    package = ROOT / "workspace/distlab"
    sources = [path.read_text() for folder in ("loop", "scripts") for path in (package / folder).glob("*.py")]
    events = {event for text in sources for event in re.findall(r'report\.log\(\s*[\w.]+,\s*"(\w+)"', text)}
    table = (ROOT / "docs/reference.md").read_text()
    assert {"setup", "epoch", "end"} <= events
    assert [event for event in sorted(events) if f"| `{event}` |" not in table] == []


def test_the_glossary_is_sorted_and_its_words_are_met_where_it_says():
    found = terms((ROOT / "workspace/Glossary.md").read_text())
    names = [re.sub(r"[^a-z0-9 ]", "", term.lower()) for term, _ in found]
    assert names == sorted(set(names)) and len(names) > 80
    texts = {str(int(page.name[:2])): text_of(page) for page in PAGES if re.match(r"\d\d_", page.name)}
    texts["0"] = text_of(ROOT / "workspace/Start_Here.ipynb")
    absent = [term for term, lesson in found if not is_met(term, texts[lesson])]
    assert absent == []


def is_met(term: str, text: str) -> bool:
    """True when the text has one of the names of a term, whatever its case and hyphens."""

    def plain(words: str) -> str:
        return re.sub(r"[\s_*`-]+", "", words.lower())

    return any(plain(name) in plain(text) for name in re.split(r", | and ", term))


def test_words_of_lessons_are_spelt_right():
    prose = "\n".join(INLINE.sub("", without_code(text_of(page))) for page in PAGES)
    said = subprocess.run([sys.executable, "-m", "codespell_lib", "-"], input=prose, text=True, capture_output=True)
    assert (said.returncode, said.stdout) == (0, ""), said.stdout + said.stderr


def test_all_other_words_are_spelt_right():
    said = subprocess.run([sys.executable, "-m", "codespell_lib"], text=True, capture_output=True, cwd=ROOT)
    assert (said.returncode, said.stdout) == (0, ""), said.stdout + said.stderr


# --- and planted mistakes -------------------------------------------------------------------------


@pytest.fixture
def house(tmp_path):
    """A small repository of pages."""
    (tmp_path / "docs").mkdir()
    (tmp_path / "workspace").mkdir()
    (tmp_path / "docs/a.md").write_text("# A page\n\n## `make up`, *twice*: why?\n\n## Again\n\n## Again\n")
    cells = [{"cell_type": "markdown", "source": ["## 2. The same Gradient"]}, {"cell_type": "code", "source": ["# x"]}]
    (tmp_path / "workspace/n.ipynb").write_text(json.dumps({"cells": cells}))
    return tmp_path


@pytest.mark.parametrize(
    ("place", "text", "wrong"),
    [
        ("docs/b.md", "[a](a.md) [up](a.md#make-up-twice-why) [two](a.md#again-1)", []),
        ("docs/b.md", "[a](c.md)", ["c.md is not there"]),
        ("docs/b.md", "![picture](none.png)", ["none.png is not there"]),
        ("docs/b.md", '<a href="c.md">c</a>', ["c.md is not there"]),
        ("docs/b.md", "[x]\n\n[x]: c.md", ["c.md is not there"]),
        ("docs/b.md", "[a](a.md#make-up)", ["a.md#make-up: there is no such heading"]),
        ("docs/b.md", "[a](a.md#again-2)", ["a.md#again-2: there is no such heading"]),
        ("docs/b.md", "# Here\n[a](#here) [b](#there)", ["#there: there is no such heading"]),
        ("docs/b.md", "[n](../workspace/n.ipynb#2.-The-same-Gradient)", []),
        ("docs/b.md", "[n](../workspace/n.ipynb#x)", ["../workspace/n.ipynb#x: there is no such heading"]),
        ("docs/b.md", "[out](../../x)", ["../../x leads out of"]),
        (
            "docs/b.md",
            "[web](https://example.org/x#y), `[code](c.md)`\n\n    [block](c.md)\n\n```\n[fence](c.md)\n```\n",
            [],
        ),
        ("workspace/n.ipynb", "[a](../docs/a.md)", ["../docs/a.md leads out of workspace/"]),
    ],
)
def test_dead_links_are_seen(house, place, text, wrong):
    found = list(dead_links(house / place, text, house))
    assert len(found) == len(wrong)
    assert all(said.startswith(part) for said, part in zip(found, wrong, strict=True)), found


def test_files_that_are_not_there_are_seen():
    assert absent_files("see `loop/step.py`, `stages/shared.py` and `exercises/NAME.py`") == ["stages/shared.py"]


def test_a_heading_in_code_is_no_anchor():
    assert github_anchors("# One\n\n```sh\n# two\n```\n\n    # three\n") == {"one"}


@pytest.mark.parametrize(
    ("text", "wrong"),
    [
        ("Make sure to make `coffee`; `make up SEAT=3`, `make`, `distlab doctor --json`", []),
        ("`make tea`", ["make tea"]),
        ("Do:\n\n    cd x && make SEAT=3 teapot   # make coffee\n", ["make teapot"]),
        ("```sh\nmake tea\n```", ["make tea"]),
        ("`docker exec node1 distlab dance`", ["distlab dance"]),
        ("`from distlab import run`, `docker save distlab | gzip`, `docker build -t distlab .`", []),
        ("`distlab run nothing --cold`, `distlab run ddp`, `distlab run nothing.py`", ["distlab run nothing"]),
        ("`distlab check nothing`", ["distlab check nothing"]),
    ],
)
def test_verbs_that_do_not_exist_are_seen(text, wrong):
    assert list(unknown_verbs(text, make_verbs(), command_verbs(), command_names())) == wrong


@pytest.mark.parametrize(
    "text", ["from py" + "pi.org", "https://files.python" + "hosted.org/x", "see /home" + "/somebody/x", "/work" + "/x"]
)
def test_pages_about_one_machine_are_seen(text):
    assert len(of_one_machine(text)) == 1
    assert of_one_machine("~/.cache/distlab, /workspace, $HOME/work/x, example.org") == []


@pytest.mark.parametrize(
    ("name", "old", "new"),
    [
        ("pyproject.toml", 'version = "', 'version = "9'),
        ("CITATION.cff", "version: ", "version: 9"),
        ("CHANGELOG.md", "## Unreleased", "## 9.0 - 2026-12-01"),
    ],
)
def test_versions_that_differ_are_seen(name, old, new):
    files = stated("pyproject.toml", "CITATION.cff", "CHANGELOG.md")
    assert len(set(versions(files).values())) == 1
    # CITATION's first "version: " is that of its own format.
    head, found, tail = files[name].rpartition(old) if name == "CITATION.cff" else files[name].partition(old)
    assert found
    assert len(set(versions(files | {name: head + new + tail}).values())) == 2


@pytest.mark.parametrize("name", ["pyproject.toml", "CITATION.cff", "LICENSE"])
def test_licences_that_differ_are_seen(name):
    files = stated("pyproject.toml", "CITATION.cff", "LICENSE")
    altered = files[name].replace("BSD", "MIT")
    assert len(set(licences(files | {name: altered}).values())) == 2


def test_a_word_that_a_lesson_lacks_is_seen():
    assert is_met("All-gather", "an **all_gather** is") and is_met("Send and receive", "to send")
    assert not is_met("All-gather", "an all-reduce")
