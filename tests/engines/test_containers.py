"""node1 and node2 as they run: who gets in, what listens, who owns what, and what trains."""

import json
import re
from functools import partial

import mechanisms
import pytest
from containers import OWNER, ROOT, answer, docker
from distlab import stages
from distlab.classroom.project import NODES
from notebook_api import execute
from until import wait_until

pytestmark = pytest.mark.timeout(300)

SSH, JUPYTER, BOARD = 2222, 8888, 6006


def test_both_are_healthy(project):
    assert [project.inspect(node)["State"]["Health"]["Status"] for node in NODES] == ["healthy", "healthy"]


@pytest.mark.parametrize("node", NODES)
def test_the_token_is_required(project, node):
    url, token = project.url(node), project.token(node)
    assert len(token) >= 24
    assert answer(f"{url}/api/contents")[0] == 403
    assert answer(f"{url}/api/contents?token={token[:-1]}x")[0] == 403
    status, contents = answer(f"{url}/api/contents?token={token}")
    assert status == 200
    assert "Start_Here.ipynb" in [file["name"] for file in contents["content"]]
    # In nobody's sight: not on a command line, not in what the engine tells of the container.
    assert token not in docker("top", project.container(node), "-eo", "pid,args").stdout
    assert token not in json.dumps(project.inspect(node))


def test_the_url_is_told_again(project):
    for node in NODES:
        told = project.run(node, "distlab", "urls").stdout.strip()
        host = project.ports[f"{node.upper()}_PORT"]
        assert told == f"http://localhost:{host}/lab/tree/Start_Here.ipynb?token={project.token(node)}"


def listening(project, node: str) -> set[tuple[str, int]]:
    """Addresses and ports that somebody listens on inside a node."""
    table = project.run(node, "ss", "-H", "-l", "-n", "-t", "-u").stdout
    return {(place.rpartition(":")[0], int(place.rpartition(":")[2])) for place in re.findall(r"(\S+:\d+) ", table)}


@pytest.mark.parametrize("node", NODES)
def test_nothing_else_listens(project, node):
    wait_until(lambda: ("0.0.0.0", BOARD) in listening(project, node), 60, lambda: listening(project, node))
    address = project.run(node, "hostname", "-i").stdout.strip()
    # Docker's own name server, and TensorBoard's helper, are on loopback addresses.
    heard = {place for place in listening(project, node) if not place[0].startswith("127.")}
    assert heard == {("0.0.0.0", JUPYTER), ("0.0.0.0", BOARD), (address, SSH)}


@pytest.mark.parametrize("node", NODES)
def test_on_this_machine_only_and_ssh_nowhere(project, node):
    ports = project.inspect(node)["NetworkSettings"]["Ports"]
    published = {inside: where for inside, where in ports.items() if where}
    assert set(published) == {f"{JUPYTER}/tcp", f"{BOARD}/tcp"}
    assert {port["HostIp"] for where in published.values() for port in where} == {"127.0.0.1"}
    assert answer(f"{project.board(node)}/data/environment")[0] == 200


@pytest.mark.parametrize("node", NODES)
def test_nobody_is_root_or_may_become_it(project, node):
    read = "for p in /proc/[0-9]*; do grep -h -E '^(Name|Uid|CapPrm|CapEff|NoNewPrivs)' $p/status; done 2>/dev/null"
    status = project.run(node, "sh", "-c", read).stdout
    assert set(re.findall(r"^Uid:\s+(.*)$", status, re.MULTILINE)) == {"\t".join([str(OWNER)] * 4)}
    assert set(re.findall(r"^Cap(?:Prm|Eff):\s+(\S+)$", status, re.MULTILINE)) == {"0" * 16}
    assert set(re.findall(r"^NoNewPrivs:\s+(\d)$", status, re.MULTILINE)) == {"1"}
    names = re.findall(r"^Name:\s+(\S+)$", status, re.MULTILINE)
    assert len(names) >= 4 and "sshd" in names
    host = project.inspect(node)["HostConfig"]
    assert not host["Privileged"] and not host["CapAdd"]
    assert not [mount for mount in host["Binds"] if "docker.sock" in mount]


def test_ssh_wants_the_key_and_nobody_else_has_it(project):
    assert project.run("node1", "ssh", "node2", "hostname").stdout.strip() == "node2"
    assert project.run("node2", "ssh", "node1", "hostname").stdout.strip() == "node1"
    # Without the settings of the image, which name the key.
    plain = ["-F", "/dev/null", "-p", str(SSH), "-o", "BatchMode=yes", "-o", "StrictHostKeyChecking=no"]
    refused = project.run("node1", "ssh", *plain, "-o", "UserKnownHostsFile=/dev/null", "node2", "true", check=False)
    assert refused.returncode == 255
    assert "Permission denied (publickey)" in refused.stderr
    modes = project.run("node1", "sh", "-c", "stat -c '%a %u' /shared/node-*  /shared/node-*/user_key").stdout
    assert modes.splitlines() == [f"700 {OWNER}", f"600 {OWNER}"]


def test_the_workspace_is_shared_and_stays_the_owners(project):
    project.run("node1", "sh", "-c", "echo 'words = 1' > exercises/mine.py; mkdir deep; touch deep/file")
    assert project.run("node2", "cat", "exercises/mine.py").stdout == "words = 1\n"
    made = [project.workspace / "exercises" / "mine.py", project.workspace / "deep", project.workspace / "deep/file"]
    assert {(path.stat().st_uid, path.stat().st_gid) for path in made} == {(OWNER, OWNER)}
    (project.workspace / "exercises" / "mine.py").write_text("words = 2\n")
    assert project.run("node1", "cat", "exercises/mine.py").stdout == "words = 2\n"


def test_looking_around_in_a_terminal(project):
    """The seed's two commands, as a login shell has them, which is what JupyterLab's terminal is."""
    for node, other in (("node1", "node2"), ("node2", "node1")):
        assert " 0% packet loss" in project.run(node, "bash", "-l", "-c", f"ping -c 2 -i 0.2 {other}").stdout
        ports = project.run(node, "bash", "-l", "-c", "lsof -i -P -n").stdout
        assert re.search(rf"sshd .* TCP [\d.]+:{SSH} \(LISTEN\)", ports)
        assert re.search(rf"python3? .* TCP \*:{JUPYTER} \(LISTEN\)", ports)
        assert "node1: 2 slots" in project.run(node, "bash", "-l", "-c", "distlab hosts").stdout


def test_hosts_are_found_and_say_where_one_is(project):
    for here, other in (("node1", "node2"), ("node2", "node1")):
        found = json.loads(project.run(here, "distlab", "hosts", "--json").stdout)
        assert {host["name"]: host["kind"] for host in found["hosts"]} == {here: "here", other: "ssh"}
        assert [host["name"] for host in found["hosts"]] == ["node1", "node2"]
        assert found["source"] == "containers on one network"


TRAINING = ("--epochs", "1", "--limit", "6000")


def lasts(result: dict, event: str) -> list[dict]:
    """Each rank's last record of an event, in rank order."""
    own = [result["metrics"][str(rank)] for rank in range(len(result["ranks"]))]
    return [[record for record in records if record["event"] == event][-1] for records in own]


def summary(result: dict) -> list[tuple]:
    """What each rank saw and learned: the same wherever it ran."""
    assert result["ok"], result["error"]
    assert [end["how"] for end in result["ranks"]] == ["completed"] * 4
    return [(end["rank"], end["host"], end["images"], round(end["accuracy"], 3)) for end in lasts(result, "end")]


def test_four_ranks_train_from_either_node_as_on_one_machine(project):
    from_first = project.train("node1", *TRAINING)
    assert from_first["hosts"] == ["node1", "node2"]
    assert [end["host"] for end in from_first["ranks"]] == ["node1", "node1", "node2", "node2"]
    from_second = project.train("node2", *TRAINING)
    pretended = project.run(
        *("node1", "env", "DISTLAB_TRANSPORT=simulated", "distlab", "run", "ddp", "--json", "--", *TRAINING)
    )
    alone = json.loads(pretended.stdout.strip().splitlines()[-1])
    assert summary(from_first) == summary(from_second) == summary(alone)
    assert sum(images for _, _, images, _ in summary(alone)) == 6000


# 32 sequences: 4 updates.
TEXT = "--layers 8 --embedding-dim 16 --heads 2 --context 16 --batch-size 8 --limit 550 --generate 3".split()


def losses(result: dict) -> list[tuple]:
    """What each rank reports of the last epoch: losses and accuracy over all ranks."""
    assert result["ok"], result["error"]
    return [(epoch["loss"], epoch["val_loss"], epoch["val_accuracy"]) for epoch in lasts(result, "epoch")]


@pytest.fixture(scope="module")
def one_process(project):
    """What one process learns of the text."""
    return losses(project.train("node2", *TEXT, script="language", hosts="node2:1"))[0]


@pytest.mark.parametrize("schedule", stages.SCHEDULES)
def test_stages_in_both_nodes_learn_what_one_process_learns(project, one_process, schedule):
    result = project.train("node1", *TEXT, "--schedule", schedule, script="pipeline")
    assert [end["host"] for end in result["ranks"]] == ["node1", "node1", "node2", "node2"]
    for rank in losses(result):
        assert rank == pytest.approx(one_process, abs=1e-5)


LIVE = """
import json
from distlab import ranks
from distlab.ranks.cell import run_cell
live = ranks.start()
run_cell(live, "x = torch.full((2,), float(me.rank)); dist.all_reduce(x)", list(range(live.size)))
print(json.dumps(ranks.values("(me.rank, me.host, x)")))
"""


def test_live_ranks_from_the_node_that_has_not_rank_0(project):
    said = project.run("node2", "python", "-c", LIVE).stdout
    assert json.loads(said.splitlines()[-1]) == [
        [0, "node1", [6.0, 6.0]],
        [1, "node1", [6.0, 6.0]],
        [2, "node2", [6.0, 6.0]],
        [3, "node2", [6.0, 6.0]],
    ]
    for node in NODES:
        assert "distlab.agent" not in project.run(node, "ps", "-A", "-o", "args").stdout


def test_the_drill_by_hand_in_four_terminals(project):
    terminals = [("node1", 0, 0), ("node1", 1, 1), ("node2", 2, 0), ("node2", 3, 1)]
    started = [
        project.start(node, "bash", "-l", "-c", f"export NCCL_DEBUG=info; python ddp_tutorial.py {rank} {gpu}")
        for node, rank, gpu in terminals
    ]
    said = [process.communicate(timeout=120)[0] for process in started]
    assert [process.returncode for process in started] == [0] * 4, said
    lines = re.findall(r"rank (\d) of 4 on (node\d), .* sum of weights (-?[\d.]+)", "".join(said))
    assert [(node, int(rank)) for rank, node, _ in lines] == [(node, rank) for node, rank, _ in terminals]
    assert len({weights for _, _, weights in lines}) == 1


# In tests of their own, here and for Horovod.
ELSEWHERE = {"compare_weights", "ddp", "env_report", "horovod_ddp", "language", "pipeline", "ring_mpi"}
ON_ONE_HOST = {"single", "data_parallel", "model_parallel"}
SCRIPTS = {path.stem for path in (ROOT / "workspace" / "distlab" / "scripts").glob("[a-z]*.py")}
EXERCISES = sorted(path.stem for path in (ROOT / "workspace" / "exercises").glob("[a-z]*.py"))


@pytest.mark.parametrize("script", sorted(SCRIPTS - ELSEWHERE))
def test_a_lessons_script_trains(project, script):
    """Its losses are finite and those of all ranks; what it teaches is compared in its lesson."""
    hosts = "node2:1" if script in ON_ONE_HOST else "node1:2,node2:2"
    words = TEXT if script == "model_parallel" else (*TRAINING, "--model", "mlp")
    result = project.train("node1", *words, script=script, hosts=hosts)
    found = losses(result)
    assert len(found) == (1 if script in ON_ONE_HOST else 4)
    assert len(set(found)) == 1 and all(0 < loss < 10 for loss in found[0][:2])


def test_weights_of_two_runs_are_compared(project):
    """One from each node, whose checkpoints lie in the workspace that both share."""
    words = (*TRAINING, "--model", "mlp")
    files = [lasts(project.train(node, *words), "end")[0]["checkpoint"] for node in NODES]
    found = lasts(project.train("node2", *files, script="compare_weights", hosts="node2:1"), "weights")[0]
    assert found["apart"] < 1e-4 < found["largest"]


def test_the_ring_under_mpirun(project):
    """Ranks that no torch knows of; containers often forbid to copy from another process's memory."""
    result = project.train("node2", script="messages/mpi", hosts="node2:1")
    assert result["ok"], result["error"]
    held = [record["held"] for record in result["metrics"]["0"] if record["event"] == "mpi"]
    assert len(held) == 4 and held[0] and all(vector == held[0] for vector in held)


@pytest.mark.parametrize("exercise", EXERCISES)
def test_a_solution_is_right(project, exercise):
    said = project.run("node1", "distlab", "check", exercise, "--file", f"solutions/{exercise}.py").stdout
    assert "this exercise is done" in said and "✘" not in said


def test_every_mechanism_in_a_notebook_of_node2s_own_server(project):
    """node1's is run in a browser."""
    mechanisms.write(project.workspace)
    done, page = execute(project.url("node2"), project.token("node2"), mechanisms.NAME, seconds=200)
    assert done.errors == []
    assert done.cells == sum(cell["cell_type"] == "code" for cell in page["cells"])
    mechanisms.assert_all_hold(done.claims)
    # The ranks of both nodes are on the board of either.
    run = re.search(r"^folder: (\S+)$", done.text, re.MULTILINE)[1]
    wanted = {f"{run}/rank{rank}" for rank in range(4)}
    shown = [partial(answer, f"{project.board(node)}/data/plugin/scalars/tags") for node in NODES]
    wait_until(lambda: all(wanted <= set(ask()[1] or ()) for ask in shown), 60, lambda: [ask() for ask in shown])


def test_a_restarted_node_asks_for_the_same_token(project):
    before = project.token("node1")
    project.compose("restart", "-t", "2", "node1")
    project.wait_healthy("node1")
    assert project.token("node1") == before
    assert answer(f"{project.url('node1')}/api/contents?token={before}")[0] == 200
