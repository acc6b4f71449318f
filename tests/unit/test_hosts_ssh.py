"""What Open MPI and Horovod find as `ssh` is what DISTLAB_SSH says."""

import os
import subprocess

from distlab.hosts.ssh import put_ssh


def test_an_ssh_with_options_does_not_find_itself(tmp_path, monkeypatch):
    real = tmp_path / "real" / "ssh"
    real.parent.mkdir()
    real.write_text('#!/bin/sh\nprintf "%s|" real "$@"\n')
    real.chmod(0o755)
    monkeypatch.setenv("PATH", f"{real.parent}{os.pathsep}{os.environ['PATH']}")
    own = put_ssh(tmp_path, "ssh -F 'my config'")
    path = {**os.environ, "PATH": f"{own}{os.pathsep}{os.environ['PATH']}"}
    words = ["sh", "-c", 'ssh node2 "echo two words"']
    done = subprocess.run(words, env=path, capture_output=True, text=True, timeout=20)
    assert done.stdout == "real|-F|my config|node2|echo two words|"


def test_a_program_that_is_not_there_is_named(tmp_path):
    own = put_ssh(tmp_path, "/nowhere/ssh -v")
    done = subprocess.run([own / "ssh", "node2"], capture_output=True, text=True, timeout=20)
    assert done.returncode == 127 and "/nowhere/ssh" in done.stderr
