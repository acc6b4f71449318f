"""Starts JupyterLab on the first page: this machine only, with a token, and the URL said plainly."""

import json
import os
import secrets
import socket
import subprocess
import sys
import urllib.error
import urllib.request
import webbrowser
from pathlib import Path

import psutil

from distlab.child import serve_child
from distlab.ports import free_port
from distlab.runs import WORKSPACE, make_folder, runs_root
from distlab.waiting import wait_until

FIRST_PAGE = "Start_Here.ipynb"
PORT = 8888
SETTINGS = WORKSPACE / "distlab" / "settings"
START_SECONDS = 60


def _trust_notebooks() -> None:
    # JupyterLab hides HTML output, our pictures, in notebooks that are not trusted.
    import nbformat
    from nbformat.sign import NotebookNotary

    notary = NotebookNotary()
    for path in WORKSPACE.glob("*.ipynb"):
        notary.sign(nbformat.read(path, as_version=4))


def _answers(url: str) -> bool:
    # Our own server is asked directly, never through the network's proxy.
    direct = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    try:
        with direct.open(url, timeout=2):
            return True
    except urllib.error.HTTPError:
        return True
    except OSError:
        return False


def command(port: int, bind: str) -> list[str]:
    """JupyterLab's command line; the token travels in the environment, out of `ps`."""
    return [
        *(sys.executable, "-m", "jupyterlab"),
        f"--ServerApp.ip={bind}",
        f"--ServerApp.port={port}",
        "--ServerApp.port_retries=0",
        f"--ServerApp.root_dir={WORKSPACE}",
        f"--LabApp.default_url=/lab/tree/{FIRST_PAGE}",
        "--ServerApp.open_browser=False",
        "--LabApp.check_for_updates_class=jupyterlab.NeverCheckForUpdate",
        *(["--allow-root"] if os.geteuid() == 0 else []),
    ]


def _config_path() -> str:
    # Our settings keep JupyterLab from asking every attendee whether it may fetch its news.
    return os.pathsep.join(filter(None, [str(SETTINGS), os.environ.get("JUPYTER_CONFIG_PATH")]))


def page(base: str, token: str) -> str:
    """The URL of the first page; WORKSHOP_URL replaces the base where a container's port is published."""
    return f"{os.environ.get('WORKSHOP_URL') or base}/lab/tree/{FIRST_PAGE}?token={token}"


def urls() -> list[str]:
    """The first page of each JupyterLab that this user runs here, with its token."""
    # What jupyter_server.serverapp.list_running_servers() reads, which takes seconds to import.
    from jupyter_core.paths import jupyter_runtime_dir

    found = []
    for path in sorted(Path(jupyter_runtime_dir()).glob("jpserver-*.json")):
        server = json.loads(path.read_text())
        if psutil.pid_exists(server["pid"]):
            found.append(page(server["url"].rstrip("/"), server["token"]))
    return found


def serve(port: int | None = None, browser: bool = True, bind: str | None = None, token: str | None = None) -> int:
    """Run JupyterLab until it ends or Ctrl-C; prints the URL once it answers.

    WORKSHOP_BIND opens it to other machines, WORKSHOP_TOKEN sets the token, WORKSHOP_PORT the
    port that is tried first; the arguments are asked first.
    """
    bind = bind or os.environ.get("WORKSHOP_BIND", "127.0.0.1")
    token = token or os.environ.get("WORKSHOP_TOKEN") or secrets.token_urlsafe(24)
    wanted = port or int(os.environ.get("WORKSHOP_PORT", PORT))
    port = free_port(bind, wanted)
    if port != wanted:
        print(f"port {wanted} is taken; using {port}")
    if os.geteuid() == 0:
        print("JupyterLab runs as root here; on your own machine, run it as yourself")
    _trust_notebooks()
    # By host name, since two containers share this folder.
    log = make_folder(runs_root()) / f"jupyterlab-{socket.gethostname()}.log"
    environment = {**os.environ, "JUPYTER_TOKEN": token, "JUPYTER_CONFIG_PATH": _config_path()}
    here = "127.0.0.1" if bind == "0.0.0.0" else bind
    url = page(f"http://{here}:{port}", token)

    def start() -> subprocess.Popen[bytes]:
        with log.open("w") as out:
            return subprocess.Popen(command(port, bind), env=environment, stdout=out, stderr=out, cwd=WORKSPACE)

    opened = False

    def look(server: subprocess.Popen[bytes]) -> None:
        nonlocal opened
        wait_until(lambda: server.poll() is not None or _answers(f"http://{here}:{port}/api"), START_SECONDS, every=0.1)
        opened = server.poll() is None and _answers(f"http://{here}:{port}/api")
        if not opened:
            server.terminate()
            return
        print(f"\nOpen this page:\n\n    {url}\n\nCtrl-C here stops it. Its log: {log}", flush=True)
        if browser and (os.environ.get("DISPLAY") or sys.platform == "darwin"):
            webbrowser.open(url)

    status = serve_child(start, look, "JupyterLab")
    if status is not None and not opened:
        print(f"JupyterLab did not start: see {log}", file=sys.stderr)
        return 1
    return max(0, status or 0)
