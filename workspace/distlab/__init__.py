"""A workshop on distributed deep learning with PyTorch.

In a notebook: `from distlab import hosts, run, check`. Importing this does not import torch.
"""

from distlab.checks import check
from distlab.hosts import find as hosts
from distlab.launch import RunFailed, RunResult, run

__version__ = "0.1.0"

__all__ = ["RunFailed", "RunResult", "__version__", "check", "hosts", "run"]
