"""A workshop on distributed deep learning with PyTorch.

In a notebook: `from distlab import hosts, run, check`. Importing this does not import torch.
"""

from importlib import import_module

from distlab import hosts

# Agents and ranks import this package too, and start sooner without what only notebooks call.
_ON_FIRST_USE = {
    "RunFailed": "distlab.launch",
    "RunResult": "distlab.launch",
    "check": "distlab.checks",
    "run": "distlab.launch",
}

__all__ = ["RunFailed", "RunResult", "__version__", "check", "hosts", "run"]


def _version() -> str:
    # Read when asked for: metadata takes longer to import than this package.
    from importlib.metadata import PackageNotFoundError, version

    try:
        return version("distlab")
    except PackageNotFoundError:
        # A copy on PYTHONPATH that was never installed.
        return "unknown"


def __getattr__(name: str) -> object:
    if name == "__version__":
        return _version()
    if name not in _ON_FIRST_USE:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_ON_FIRST_USE[name]), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
