"""A notebook without its page: one kernel, and what its cells say."""

import time

from jupyter_client.manager import start_new_kernel
from running import marked_environment


class Notebook:
    """One kernel, and what its cells said."""

    def __init__(self, mark: str) -> None:
        self.manager, self.client = start_new_kernel(kernel_name="python3", env=marked_environment(mark))

    def start(self, code: str) -> str:
        return self.client.execute(code)

    def outputs(self, cell: str, until: str, seconds: float) -> dict:
        """Messages of a cell up to its end, or up to a stream that holds `until`."""
        said = {"stream": "", "error": "", "shown": ""}
        limit = time.monotonic() + seconds
        while True:
            message = self.client.get_iopub_msg(timeout=max(0.1, limit - time.monotonic()))
            if message["parent_header"].get("msg_id") != cell:
                continue
            content = message["content"]
            if message["msg_type"] == "stream":
                said["stream"] += content["text"]
            elif message["msg_type"] == "error":
                said["error"], said["shown"] = content["ename"], "\n".join(content["traceback"])
            ended = message["msg_type"] == "status" and content["execution_state"] == "idle"
            if ended or (until and said["stream"].count(until) >= 2):
                return said

    def run(self, code: str, seconds: float = 60) -> dict:
        return self.outputs(self.start(code), "", seconds)
