"""Hosts as text, as a hostfile, as a Slurm allocation, and as shares of one machine."""

import pytest
from distlab.hosts import HostList, HostsError, find, hostlist, parse, simulated
from distlab.hosts.gpus import Gpu
from distlab.hosts.host import Host
from distlab.hosts.simulated import share
from distlab.hosts.text import expand_nodelist, read_hostfile, read_slurm, read_string, to_hosts


@pytest.fixture(autouse=True)
def plain_environment(monkeypatch):
    for name in (
        "DISTLAB_HOSTS",
        "DISTLAB_HOSTFILE",
        "DISTLAB_TRANSPORT",
        "SLURM_JOB_NODELIST",
        "CUDA_VISIBLE_DEVICES",
    ):
        monkeypatch.delenv(name, raising=False)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("node1:2,node2:2", [("node1", 2), ("node2", 2)]),
        (" node1:2 , node2 ", [("node1", 2), ("node2", 1)]),
        ("gpu-a.example.org:8", [("gpu-a.example.org", 8)]),
        ("10.0.0.1:128", [("10.0.0.1", 128)]),
    ],
)
def test_a_hosts_string(text, expected):
    assert read_string(text) == expected


@pytest.mark.parametrize(
    ("text", "part"),
    [
        ("", "'' has no host name"),
        (",", "'' has no host name"),
        ("node1:2,", "'' has no host name"),
        (":2", "':2' has no host name"),
        ("node 1:2", "'node 1:2' has no host name"),
        ("-node1:2", "'-node1:2' has no host name"),
        ("node1;rm:2", "has no host name"),
        ("$(id):1", "has no host name"),
        ("node1:", "'' is not a number of slots between 1 and 128"),
        ("node1:two", "'two' is not a number of slots"),
        ("node1:2:2", "'2:2' is not a number of slots"),
        ("node1:0", "'0' is not a number of slots"),
        ("node1:-1", "'-1' is not a number of slots"),
        ("node1:1.5", "'1.5' is not a number of slots"),
        ("node1:\N{SUPERSCRIPT TWO}", "is not a number of slots"),
        ("node1:129", "'129' is not a number of slots between 1 and 128"),
        ("node1:99999999999999999999", "is not a number of slots"),
        ("node1:2,node2:2,node1:1", "node1 is given twice; add up its slots"),
    ],
)
def test_a_malformed_hosts_string_is_quoted_with_what_is_wrong(text, part):
    with pytest.raises(HostsError) as caught:
        parse(text)
    assert part in str(caught.value)
    assert repr(text) in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_malformed_string_comes_with_an_example():
    with pytest.raises(HostsError, match="for example node1:2,node2:2"):
        parse("node1:x")


def write(tmp_path, text):
    path = tmp_path / "hostfile"
    path.write_text(text)
    return path


def test_a_hostfile(tmp_path):
    text = "# ours\nnode1 slots=2 max_slots=4\n\nnode2   slots=3  # the big one\nnode3\nnode1 slots=1\n"
    assert read_hostfile(write(tmp_path, text)) == [("node1", 3), ("node2", 3), ("node3", 1)]


@pytest.mark.parametrize(
    ("text", "part"),
    [
        ("node1 slots=2\nnode2 slots=many\n", "hostfile, line 2: 'many' is not a number of slots"),
        ("# first\n\n=2\n", "hostfile, line 3: '=2' is not a host name"),
        ("node1 slots=0\n", "hostfile, line 1: '0' is not a number of slots"),
        ("# nobody\n", "names no host: write one a line, for example node1 slots=2"),
    ],
)
def test_a_malformed_hostfile_names_the_line(tmp_path, text, part):
    with pytest.raises(HostsError, match=part):
        read_hostfile(write(tmp_path, text))


def test_a_hostfile_that_cannot_be_read(tmp_path):
    with pytest.raises(HostsError, match="hostfile .*nowhere: No such file or directory"):
        read_hostfile(tmp_path / "nowhere")
    with pytest.raises(HostsError, match="Is a directory"):
        read_hostfile(tmp_path)
    (tmp_path / "binary").write_bytes(b"\xff\xfe\x00node")
    with pytest.raises(HostsError, match="binary: is not text"):
        read_hostfile(tmp_path / "binary")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("linux[1,2]", ["linux1", "linux2"]),
        ("a,b", ["a", "b"]),
        ("n[01-03]x", ["n01x", "n02x", "n03x"]),
        ("n[9-11]", ["n9", "n10", "n11"]),
        ("n[08-10,12],gpu", ["n08", "n09", "n10", "n12", "gpu"]),
        ("r[1-2]n[1-2]", ["r1n1", "r1n2", "r2n1", "r2n2"]),
        ("lonely", ["lonely"]),
    ],
)
def test_a_slurm_node_list(text, expected):
    assert expand_nodelist(text) == expected


@pytest.mark.parametrize("text", ["n[1-", "n1-2]", "a,,b", "a,", "n[2-1]", "n[a-b]", "n[1-2", "n[[1]]", ""])
def test_a_malformed_node_list(text):
    with pytest.raises(HostsError, match="node list"):
        expand_nodelist(text)


@pytest.mark.parametrize(
    ("tasks", "expected"),
    [("2(x3),1", [2, 2, 2, 1]), ("4", [4, 4, 4, 4]), ("1,2", [1, 2, 2, 2]), (None, [1, 1, 1, 1])],
)
def test_a_slurm_allocation(monkeypatch, tasks, expected):
    monkeypatch.setenv("PATH", "")
    environ = {"SLURM_JOB_NODELIST": "n[1-4]"} | ({"SLURM_TASKS_PER_NODE": tasks} if tasks else {})
    assert read_slurm(environ) == list(zip(["n1", "n2", "n3", "n4"], expected, strict=True))


def test_a_malformed_slurm_allocation(monkeypatch):
    monkeypatch.setenv("PATH", "")
    with pytest.raises(HostsError, match=r"SLURM_TASKS_PER_NODE='2\(3\)': '2\(3\)' is no count"):
        read_slurm({"SLURM_JOB_NODELIST": "n1", "SLURM_TASKS_PER_NODE": "2(3)"})


@pytest.mark.parametrize(
    ("items", "parts", "expected"),
    [
        ("0123", 2, ["01", "23"]),
        ("012", 2, ["01", "2"]),
        ("01234567", 3, ["012", "34", "567"]),
        ("0", 2, ["0", "0"]),
        ("01", 3, ["0", "1", "0"]),
        ("", 2, ["", ""]),
    ],
)
def test_shares_of_a_machine(items, parts, expected):
    shares = share(list(items), parts)
    assert ["".join(part) for part in shares] == expected
    if len(items) >= parts:
        assert sorted("".join(expected)) == sorted(items)


def pretend(monkeypatch, count):
    gpus = [Gpu(str(index), "pretended", 2**30) for index in range(count)]
    monkeypatch.setattr(simulated, "list_gpus", lambda: gpus)


def test_simulated_hosts_see_their_own_gpus(monkeypatch):
    pretend(monkeypatch, 4)
    node1, node2 = parse("node1:2,node2:2")
    assert node1.environment()["CUDA_VISIBLE_DEVICES"] == "0,1"
    assert node2.environment()["CUDA_VISIBLE_DEVICES"] == "2,3"
    assert node1.environment()["DISTLAB_HOST"] == "node1"


def test_without_gpus_simulated_hosts_see_none(monkeypatch):
    pretend(monkeypatch, 0)
    assert [host.environment()["CUDA_VISIBLE_DEVICES"] for host in parse("node1:2,node2:2")] == ["", ""]


def test_real_hosts_keep_all_they_have(monkeypatch):
    monkeypatch.setenv("DISTLAB_TRANSPORT", "ssh")
    (host,) = parse("127.0.0.9:2")
    assert (host.kind, host.gpus, host.cores) == ("ssh", None, None)
    assert host.environment() == {"DISTLAB_HOST": "127.0.0.9"}


@pytest.mark.parametrize(("cores", "ranks", "threads"), [(2, 4, 1), (8, 2, 4), (8, 3, 2), (1, 1, 1), (4, 0, 4)])
def test_threads_fill_the_cores_of_a_host(cores, ranks, threads):
    assert Host("node1", ranks, "simulated", "127.0.0.1", (), cores).threads(ranks) == threads


def test_simulated_and_real_hosts_do_not_mix():
    with pytest.raises(HostsError, match="node1 would be simulated beside real hosts: set DISTLAB_TRANSPORT=ssh"):
        to_hosts([("node1", 2), ("127.0.0.9", 2)])


def test_transports(monkeypatch):
    monkeypatch.setenv("DISTLAB_TRANSPORT", "pigeon")
    with pytest.raises(HostsError, match="DISTLAB_TRANSPORT='pigeon' is unknown: use ssh or simulated"):
        parse("node1:2")
    monkeypatch.setenv("DISTLAB_TRANSPORT", "simulated")
    assert [host.kind for host in parse("alpha:1,beta:1")] == ["simulated", "simulated"]


@pytest.mark.parametrize("name", ["nowhere.invalid", "two..dots", "x" * 70])
def test_a_name_that_does_not_resolve(monkeypatch, name):
    monkeypatch.setenv("DISTLAB_TRANSPORT", "ssh")
    with pytest.raises(HostsError, match="does not resolve: check the name"):
        parse(f"{name}:1")


def test_where_hosts_are_found(monkeypatch, tmp_path):
    assert [(host.name, host.slots) for host in find().hosts] == [("node1", 2), ("node2", 2)]
    assert find().slots == 4 and "simulated" in find().source
    monkeypatch.setenv("SLURM_JOB_NODELIST", "localhost")
    monkeypatch.setenv("SLURM_JOB_ID", "17")
    assert find().source == "Slurm job 17"
    monkeypatch.setenv("DISTLAB_HOSTFILE", str(write(tmp_path, "node3 slots=5\n")))
    assert [(host.name, host.slots) for host in find().hosts] == [("node3", 5)]
    monkeypatch.setenv("DISTLAB_HOSTS", "node4:1,node5:2")
    assert [(host.name, host.slots) for host in find().hosts] == [("node4", 1), ("node5", 2)]
    assert "node5: 2 slots, simulated" in str(find())


# -- a device each -------------------------------------------------------------------------------


def simulated_hosts(monkeypatch, cores, gpus=0, slots="node1:2,node2:2"):
    monkeypatch.setattr(simulated, "machine_cores", lambda: cores)
    monkeypatch.setattr(hostlist, "machine_cores", lambda: cores)
    monkeypatch.setattr(simulated, "list_gpus", lambda: [Gpu(str(index), "a GPU", 1) for index in range(gpus)])
    monkeypatch.delenv("DISTLAB_DEVICE", raising=False)
    return HostList(parse(slots), "a test")


@pytest.mark.parametrize(
    ("cores", "gpus", "slots", "expected"),
    [
        (2, 0, "node1:2,node2:2", "node1:1,node2:1"),
        (3, 0, "node1:2,node2:2", "node1:1,node2:1"),
        (4, 0, "node1:2,node2:2", "node1:2,node2:2"),
        (64, 0, "node1:2,node2:2", "node1:2,node2:2"),
        (64, 0, "node1:8,node2:8", "node1:8,node2:8"),
        (64, 2, "node1:2,node2:2", "node1:1,node2:1"),
        (2, 4, "node1:2,node2:2", "node1:2,node2:2"),
        (8, 0, "node1:4,node2:2", "node1:2,node2:2"),
        (4, 0, "node1:4", "node1:4"),
    ],
)
def test_ranks_with_a_core_or_a_gpu_each(monkeypatch, capsys, cores, gpus, slots, expected):
    assert simulated_hosts(monkeypatch, cores, gpus, slots).one_device_each() == expected
    assert capsys.readouterr().out == ""


@pytest.mark.parametrize(
    ("cores", "gpus", "slots", "expected", "said"),
    [
        (1, 0, "node1:2,node2:2", "node1:1,node2:1", "2 ranks share 1 core: times are not their own"),
        (1, 0, "node1:1", "node1:2", "2 ranks share 1 core: times are not their own"),
        (64, 1, "node1:2,node2:2", "node1:1,node2:1", "2 ranks share 1 GPU: times are not their own"),
        (2, 0, "node1:1,node2:1,node3:1", "node1:1,node2:1,node3:1", "3 ranks share 2 cores: times are not their own"),
    ],
)
def test_ranks_that_have_to_share_are_told(monkeypatch, capsys, cores, gpus, slots, expected, said):
    assert simulated_hosts(monkeypatch, cores, gpus, slots).one_device_each() == expected
    assert capsys.readouterr().out.strip() == said


def test_cores_count_where_the_gpus_are_left_alone(monkeypatch):
    found = simulated_hosts(monkeypatch, 4, 2)
    monkeypatch.setenv("DISTLAB_DEVICE", "cpu")
    assert found.one_device_each() == "node1:2,node2:2"


def test_real_hosts_have_the_slots_that_they_were_given():
    found = HostList([Host("a", 4, "ssh", "10.0.0.1"), Host("b", 2, "ssh", "10.0.0.2")], "hostfile")
    assert found.one_device_each() == "a:2,b:2"


def test_a_real_host_with_one_slot_gets_two_ranks_and_says_so(capsys):
    assert HostList([Host("a", 1, "here", "10.0.0.1")], "hostfile").one_device_each() == "a:2"
    assert capsys.readouterr().out.strip() == "2 ranks share 1 slot: times are not their own"
