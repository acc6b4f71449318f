"""Device and backend, from what each rank of a job can offer."""

import time

import pytest
import torch
from distlab import process
from distlab.process import device
from distlab.process.device import CPU, choose, device_id, gpu_index, place


def chosen(device_ids, **environ):
    choice = choose(device_ids, environ)
    return choice.device_type, choice.backend


def test_a_gpu_for_each_rank():
    assert chosen(["a", "b", "c", "d"]) == ("cuda", "nccl")
    assert chosen(["a"]) == ("cuda", "nccl")


def test_two_hosts_that_share_one_gpu():
    # The same GPU seen from node1 and node2: NCCL refuses two ranks on one.
    choice = choose(["a", "a"], {})
    assert (choice.device_type, choice.backend) == ("cuda", "gloo")
    assert choice.reason == "on cuda over gloo: 2 ranks share 1 GPU, and NCCL wants one for each"
    assert "4 ranks share 2 GPUs" in choose(["a", "b", "a", "b"], {}).reason


def test_no_gpu():
    assert chosen([CPU] * 4) == ("cpu", "gloo")
    assert choose([CPU], {}).reason == "on cpu over gloo: no GPU"


def test_a_gpu_on_one_host_only():
    choice = choose(["a", CPU], {})
    assert (choice.device_type, choice.backend) == ("cpu", "gloo")
    assert "not every rank has a GPU" in choice.reason


def test_the_backend_can_be_asked_for():
    assert chosen(["a", "b"], DISTLAB_BACKEND="gloo") == ("cuda", "gloo")
    assert chosen(["a", "b"], DISTLAB_BACKEND="nccl") == ("cuda", "nccl")
    assert chosen(["a", "b"], DISTLAB_BACKEND="") == ("cuda", "nccl")


@pytest.mark.parametrize(
    ("device_ids", "message"),
    [
        ([CPU, CPU], "DISTLAB_BACKEND=nccl needs a GPU for every rank, but no GPU: use gloo"),
        (["a", CPU], "needs a GPU for every rank, but not every rank has a GPU: use gloo"),
        (["a", "a"], "DISTLAB_BACKEND=nccl, but 2 ranks share 1 GPU, which NCCL refuses: use gloo"),
    ],
)
def test_nccl_where_it_cannot_be(device_ids, message):
    with pytest.raises(ValueError, match=message):
        choose(device_ids, {"DISTLAB_BACKEND": "nccl"})


def test_unknown_values_are_named():
    with pytest.raises(ValueError, match="DISTLAB_BACKEND='mpi' is unknown: use gloo or nccl"):
        choose(["a"], {"DISTLAB_BACKEND": "mpi"})
    with pytest.raises(ValueError, match="DISTLAB_DEVICE='tpu' is unknown: use cpu or cuda"):
        device_id(0, {"DISTLAB_DEVICE": "tpu"})


class PretendedCuda:
    """Stands in for torch.cuda: as many GPUs as the visible list has, and what was made current."""

    def __init__(self, visible: str) -> None:
        self.ids = [gpu for gpu in visible.split(",") if gpu]
        self.current = None

    def is_available(self) -> bool:
        return bool(self.ids)

    def device_count(self) -> int:
        return len(self.ids)

    def get_device_properties(self, index: int):
        # As torch does: an index that is not in the visible list is an error.
        return type("Properties", (), {"uuid": f"GPU-{self.ids[index]}"})

    def set_device(self, where) -> None:
        assert where.index < len(self.ids), "invalid device ordinal"
        self.current = where


@pytest.fixture
def cuda(monkeypatch):
    def pretend(visible: str) -> PretendedCuda:
        cuda = PretendedCuda(visible)
        monkeypatch.setattr(device.torch, "cuda", cuda)
        return cuda

    return pretend


def test_the_device_comes_from_the_local_rank(cuda):
    # Two hosts of one GPU: the second rank must take index 0, not its rank.
    there = cuda("0")
    assert place(choose(["GPU-a", "GPU-b"], {}), local_rank=0) == torch.device("cuda", 0)
    assert there.current == torch.device("cuda", 0)


def test_the_index_counts_within_the_visible_list(cuda):
    there = cuda("6,7")
    assert [device_id(local_rank, {}) for local_rank in (0, 1)] == ["GPU-6", "GPU-7"]
    assert place(choose(["GPU-6", "GPU-7"], {}), local_rank=1) == torch.device("cuda", 1)
    assert there.current == torch.device("cuda", 1)


def test_ranks_share_in_turn(cuda):
    cuda("4,5")
    assert [device_id(local_rank, {}) for local_rank in range(4)] == ["GPU-4", "GPU-5", "GPU-4", "GPU-5"]
    assert [gpu_index(local_rank, 3) for local_rank in range(4)] == [0, 1, 2, 0]


def test_cpu_can_be_asked_for_beside_gpus(cuda):
    cuda("0")
    assert device_id(0, {"DISTLAB_DEVICE": "cpu"}) == CPU
    assert place(choose([CPU], {}), 0) == torch.device("cpu")


def test_cuda_asked_for_without_a_gpu(cuda):
    cuda("")
    with pytest.raises(ValueError, match="DISTLAB_DEVICE=cuda, but torch sees no GPU here"):
        device_id(0, {"DISTLAB_DEVICE": "cuda"})


def test_a_clock_waits_for_gpus_alone(monkeypatch):
    waited = []
    monkeypatch.setattr("torch.cuda.synchronize", waited.append)
    before = time.perf_counter()
    assert before <= process.now(torch.device("cpu")) <= time.perf_counter()
    assert waited == []
    gpus = torch.device("cuda", 0), torch.device("cuda", 1)
    process.now(*gpus)
    assert waited == list(gpus)


def test_a_horovod_with_nccl_lets_nobody_share_a_gpu():
    from distlab.lessons.horovod.joining import choose_device

    own, shared = ["one", "two"], ["one", "one"]
    assert choose_device(own, has_nccl=True, environ={}).backend == "nccl"
    assert choose_device(shared, has_nccl=False, environ={}) == choose(shared, {})
    found = choose_device(shared, has_nccl=True, environ={})
    assert (found.device_type, found.backend) == ("cpu", "gloo")
    assert found.reason == "on cpu: 2 ranks share 1 GPU, and NCCL wants one for each"
    assert choose_device(["cpu", "cpu"], has_nccl=True, environ={}).device_type == "cpu"
