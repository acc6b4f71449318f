"""A short notebook that uses each mechanism of the course once: what an engine has to carry.

A run, live ranks with %%px, an exercise's check, a picture, and a run that the board can show. The lessons
themselves are compared by nbval, on the machine; an engine changes where they run, not what they say.
"""

import os
from pathlib import Path

import nbformat

NAME = "mechanisms.ipynb"
CELLS = (
    """
from distlab import check, ranks, run
from distlab.drawing import figure
from distlab.lesson import begin, claim, commands, each, end

begin("Every mechanism")
""",
    """
done = run("ddp", epochs=1, limit=4_000, model="mlp")
done.show()
commands(done)
""",
    """
last = done.last("end")
claim("two ranks on each host", each(last, "host") == ["node1", "node1", "node2", "node2"])
claim("together they saw every image once", sum(each(last, "images")) == 4_000)
claim("all report one accuracy", len(set(each(last, "accuracy"))) == 1)
print("folder:", done.folder.name)
""",
    """
picture, (axes,) = figure.new(2.5, "Images per second of each rank, as four bars")
axes.bar([str(rank) for rank in last], each(last, "images_per_second"))
picture
""",
    """
ranks.start()
""",
    """
%%px
x = torch.full((2,), float(me.rank))
dist.all_reduce(x)
print(f"rank {me.rank} has {x.tolist()}")
""",
    """
claim("live ranks are on both hosts", ranks.values("me.host") == each(last, "host"))
claim("each has the sum of all", ranks.values("x.tolist()") == [[6.0, 6.0]] * 4)
ranks.stop()
""",
    """
right = check("ring", file="solutions/ring.py")
wrong = check("ring", file="exercises/ring.py")
claim("the solution is right and the empty exercise is not", right.ok and not wrong.ok)
""",
    """
end()
""",
)
CLAIMS = sum(cell.count("claim(") for cell in CELLS)


def write(workspace: Path) -> Path:
    """Put the notebook into a workspace, as a file of the folder's owner."""
    notebook = nbformat.v4.new_notebook()
    notebook.metadata["kernelspec"] = {"name": "python3", "display_name": "Python 3", "language": "python"}
    notebook.cells = [nbformat.v4.new_code_cell(cell.strip()) for cell in CELLS]
    path = workspace / NAME
    nbformat.write(notebook, path)
    owner = workspace.stat()
    os.chown(path, owner.st_uid, owner.st_gid)
    return path


def assert_all_hold(claims: list[str]) -> None:
    """Every claim of the notebook was made, and that of `end()`, and all hold.

    Raises:
        AssertionError: one is missing or broken.
    """
    assert len([claim for claim in claims if claim.endswith(": True")]) == CLAIMS + 1, claims
    assert not [claim for claim in claims if claim.endswith(": False")]
