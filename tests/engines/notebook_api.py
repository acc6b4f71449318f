"""Executes a notebook through a Jupyter server's own API, cell by cell, as a browser does."""

import json
import time
import uuid
from contextlib import closing
from dataclasses import dataclass, field

import websocket
from containers import answer


@dataclass
class Executed:
    """What the cells of a notebook said: printed text, and the errors that they ended in."""

    cells: int = 0
    text: str = ""
    errors: list[str] = field(default_factory=list)

    @property
    def claims(self) -> list[str]:
        """The lines that say whether a claim holds."""
        return claims_in(self.text)


def claims_in(text: str) -> list[str]:
    """Lines that begin with the sign of a claim, kept or broken."""
    return [line for line in text.splitlines() if line[:1] in "✓✗" and line.strip()]


def _execute(socket: websocket.WebSocket, code: str, session: str, done: Executed, until: float) -> None:
    header = {"msg_id": uuid.uuid4().hex, "msg_type": "execute_request", "username": "test", "session": session}
    content = {"code": code, "silent": False, "store_history": True, "allow_stdin": False, "stop_on_error": True}
    message = {"header": header | {"version": "5.3", "date": ""}, "parent_header": {}, "metadata": {}}
    socket.send(json.dumps({**message, "content": content, "channel": "shell"}))
    idle = replied = False
    while not (idle and replied):
        socket.settimeout(max(0.1, until - time.monotonic()))
        heard = json.loads(socket.recv())
        if heard["parent_header"].get("msg_id") != header["msg_id"]:
            continue
        kind, said = heard["header"]["msg_type"], heard["content"]
        if kind == "stream" and said["name"] == "stdout":
            done.text += said["text"]
        elif kind == "error":
            done.errors.append(f"{said['ename']}: {said['evalue']}")
        idle |= kind == "status" and said["execution_state"] == "idle"
        replied |= kind == "execute_reply"
    done.cells += 1


def execute(base: str, token: str, notebook: str, seconds: float) -> tuple[Executed, dict]:
    """Run all code cells of a notebook that the server has; stops at the first error.

    Returns:
        What was said, and the notebook as the server gave it.
    """
    status, page = answer(f"{base}/api/contents/{notebook}?token={token}")
    assert status == 200, f"{notebook}: {status}"
    kernel = {"path": notebook, "name": notebook, "type": "notebook", "kernel": {"name": "python3"}}
    status, opened = answer(f"{base}/api/sessions?token={token}", "POST", kernel, timeout=60)
    assert status == 201, f"no kernel for {notebook}: {status}"
    done, until = Executed(), time.monotonic() + seconds
    address = f"{base.replace('http', 'ws', 1)}/api/kernels/{opened['kernel']['id']}/channels?token={token}"
    try:
        with closing(websocket.create_connection(address, timeout=60, http_no_proxy=["*"])) as socket:
            for cell in page["content"]["cells"]:
                if cell["cell_type"] == "code" and not done.errors:
                    _execute(socket, cell["source"], opened["id"], done, until)
    finally:
        answer(f"{base}/api/sessions/{opened['id']}?token={token}", "DELETE")
    return done, page["content"]
