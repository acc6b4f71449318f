"""How scripts start on hosts and how they end: streamed, timed, and with nothing left behind.

Nothing here imports torch; that is done by the agents, on the hosts.
"""

from distlab.launch.connection import HostError
from distlab.launch.result import RankEnd, RunFailed, RunResult
from distlab.launch.running import run
from distlab.launch.scripts import ScriptError, script_names
from distlab.launch.session import Session, default_session

__all__ = [
    "HostError",
    "RankEnd",
    "RunFailed",
    "RunResult",
    "ScriptError",
    "Session",
    "default_session",
    "run",
    "script_names",
]
