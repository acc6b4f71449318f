"""A rank's share of its host: that memory freed by one step serves the next."""

import subprocess
import sys

# In a process of its own, since what malloc is told holds for the rest of a process's life.
FAULTS = """
import resource, sys
import torch
from distlab.process.share import keep_freed_memory

if sys.argv[1] == "kept":
    keep_freed_memory()

def step():
    for size in (1 << 22, 1 << 24):
        torch.ones(size)

for _ in range(3):
    step()
before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
for _ in range(5):
    step()
print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
"""


def faults(how: str) -> int:
    return int(subprocess.run([sys.executable, "-c", FAULTS, how], capture_output=True, text=True, check=True).stdout)


def test_memory_that_a_step_frees_serves_the_next():
    # 80 MiB a step; the kernel hands them out in pages of 4 KiB, or in huge ones.
    assert faults("kept") < 10
    assert faults("given back") > 100


def test_a_rank_keeps_it_from_the_start(tmp_path):
    script = tmp_path / "rank.py"
    script.write_text(
        FAULTS.replace("if sys", "from distlab import process\nwith process.alone():\n    pass\nif sys").replace(
            "print(", "print('faults', "
        )
    )
    said = subprocess.run(
        [sys.executable, script, "as it is"], capture_output=True, text=True, check=True, cwd=tmp_path
    ).stdout
    assert int(said.split("faults")[1]) < 10
