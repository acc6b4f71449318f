"""The stand-in computes what one device computes, and behaves as torch's DataParallel does."""

import copy
import threading
import time

import pytest
import torch
from distlab import checkpoint, models, replicas
from distlab.process.device import spread
from distlab.replicas import threads
from torch import nn
from torch.nn.functional import cross_entropy

CPU = torch.device("cpu")


class Net(nn.Module):
    """A tied and a frozen weight, a buffer, and a second argument by name."""

    def __init__(self):
        super().__init__()
        self.first = nn.Linear(6, 6)
        self.second = nn.Linear(6, 6)
        self.second.weight = self.first.weight
        self.scale = nn.Parameter(torch.rand(6), requires_grad=False)
        self.register_buffer("shift", torch.rand(6))
        self.nothing = None
        self.last = nn.Linear(6, 3)

    def forward(self, x, factor=None, weights=None):
        x = torch.tanh(self.second(self.first(x))) * self.scale + self.shift
        if weights is not None:
            x = x * weights[:, None]
        return self.last(x) * (factor or 1)


@pytest.fixture
def net():
    torch.manual_seed(0)
    return Net().double()


def batch(size):
    dice = torch.Generator().manual_seed(size)
    x = torch.randn(size, 6, generator=dice, dtype=torch.float64)
    return x, torch.randint(3, (size,), generator=dice)


def spread_over(net, number):
    return replicas.wrap(copy.deepcopy(net), [CPU] * number)


def gradients(net):
    return [weight.grad for weight in net.parameters()]


@pytest.mark.parametrize("number", [1, 2, 3, 4])
@pytest.mark.parametrize("size", [1, 2, 6, 10, 12])
def test_outputs_and_gradients_equal_one_device(net, number, size):
    x, y = batch(size)
    alone, wrapped = copy.deepcopy(net), spread_over(net, number)
    x_alone, x_wrapped = x.clone().requires_grad_(), x.clone().requires_grad_()
    for model, given in ((alone, x_alone), (wrapped, x_wrapped)):
        # Twice, so that gradients add up on what is there.
        for _ in range(2):
            cross_entropy(model(given), y).backward()
    torch.testing.assert_close(wrapped(x), alone(x), rtol=0, atol=1e-12)
    torch.testing.assert_close(gradients(wrapped.module), gradients(alone), rtol=0, atol=1e-12)
    torch.testing.assert_close(x_wrapped.grad, x_alone.grad, rtol=0, atol=1e-12)
    assert alone.scale.grad is None and wrapped.module.scale.grad is None
    assert alone.first.weight.grad.abs().max() > 1e-4


def test_arguments_by_name_are_cut_too_and_others_go_to_all(net):
    x, _ = batch(10)
    weights = torch.arange(10.0, dtype=torch.float64)
    torch.testing.assert_close(
        spread_over(net, 4)(x, factor=3, weights=weights), net(x, factor=3, weights=weights), rtol=0, atol=1e-12
    )
    only_names = spread_over(net, 4)(x=x)
    torch.testing.assert_close(only_names, net(x), rtol=0, atol=1e-12)


def test_a_weight_used_by_one_replica_only_has_its_gradient():
    class Picky(nn.Module):
        def __init__(self):
            super().__init__()
            self.used, self.other = nn.Parameter(torch.ones(1)), nn.Parameter(torch.ones(1))

        def forward(self, x):
            return x * (self.used if x[0, 0] > 0 else self.other)

    net = Picky()
    replicas.wrap(net, [CPU] * 2)(torch.tensor([[1.0], [-3.0]])).sum().backward()
    assert (net.used.grad.item(), net.other.grad.item()) == (1.0, -3.0)


def test_a_replica_whose_output_depends_on_no_weight():
    class Passing(nn.Module):
        def __init__(self):
            super().__init__()
            self.weight = nn.Parameter(torch.ones(1))

        def forward(self, x):
            return x * self.weight if x[0, 0] > 0 else x

    net = Passing()
    replicas.wrap(net, [CPU] * 2)(torch.tensor([[5.0], [-3.0]])).sum().backward()
    assert net.weight.grad.item() == 5


def test_an_argument_for_all_in_front_of_a_small_batch():
    class Times(nn.Module):
        def forward(self, factor, x):
            return factor * x

    assert replicas.wrap(Times(), [CPU] * 4)(3, x=torch.ones(2)).tolist() == [3, 3]


def test_a_model_without_weights_and_one_that_is_frozen():
    x = torch.randn(5, 3)
    torch.testing.assert_close(replicas.wrap(nn.ReLU(), [CPU] * 2)(x), x.relu())
    frozen = nn.Linear(3, 2).requires_grad_(False)
    assert not replicas.wrap(frozen, [CPU] * 2)(x).requires_grad


def test_recurrent_layers_cache_weights_and_still_learn():
    torch.manual_seed(0)
    net = nn.LSTM(3, 4, batch_first=True).double()

    class Last(nn.Module):
        def __init__(self):
            super().__init__()
            self.net = copy.deepcopy(net)

        def forward(self, x):
            return self.net(x)[0][:, -1]

    alone, x = Last(), torch.randn(6, 5, 3, dtype=torch.float64)
    wrapped = replicas.wrap(copy.deepcopy(alone), [CPU] * 3)
    alone(x).square().mean().backward()
    wrapped(x).square().mean().backward()
    torch.testing.assert_close(gradients(wrapped.module), gradients(alone), rtol=0, atol=1e-12)


def test_scatter_keeps_order_and_leaves_no_piece_empty():
    for size, lengths in ((10, [3, 3, 3, 1]), (6, [2, 2, 2]), (2, [1, 1]), (8, [2, 2, 2, 2])):
        pieces = replicas.scatter(torch.arange(size), [CPU] * 4)
        assert [len(piece) for piece in pieces] == lengths
        assert torch.cat(pieces).tolist() == list(range(size))


def test_pieces_and_replicas_go_to_their_devices():
    devices = [CPU, torch.device("meta")]
    assert [piece.device.type for piece in replicas.scatter(torch.ones(4), devices)] == ["cpu", "meta"]
    copies = replicas.replicate(nn.Linear(2, 2), devices)
    assert [copy.weight.device.type for copy in copies] == ["cpu", "meta"]


def test_the_first_replica_shares_the_model_s_memory_and_the_others_do_not(net):
    first, second = replicas.replicate(net, [CPU] * 2)
    assert first.first.weight.data_ptr() == net.first.weight.data_ptr()
    assert first.shift.data_ptr() == net.shift.data_ptr()
    assert second.first.weight.data_ptr() != net.first.weight.data_ptr()
    assert second.second.weight is second.first.weight or torch.equal(second.second.weight, second.first.weight)
    assert first.nothing is None
    with torch.no_grad():
        second.shift += 1
    assert not torch.equal(second.shift, net.shift)


def test_every_replica_has_a_thread_of_its_own_forward_and_backward():
    meeting, seen = threading.Barrier(3, timeout=20), {"forward": set(), "backward": set()}

    class Meet(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            meeting.wait()
            seen["forward"].add(threading.current_thread())
            return x.clone()

        @staticmethod
        def backward(ctx, gradient):
            meeting.wait()
            seen["backward"].add(threading.current_thread())
            return gradient

    class Slow(nn.Module):
        def __init__(self):
            super().__init__()
            self.weight = nn.Parameter(torch.ones(1))

        def forward(self, x):
            # The first is the last to be ready, and the order stays.
            time.sleep(0.02 * (3 - x[0, 0].item()))
            return Meet.apply(x * self.weight)

    net = Slow()
    outputs = replicas.wrap(net, [CPU] * 3)(torch.tensor([[0.0], [1.0], [2.0]]))
    assert outputs.flatten().tolist() == [0, 1, 2]
    outputs.sum().backward()
    assert net.weight.grad.item() == 3
    for found in seen.values():
        assert len(found) == 3 and threading.current_thread() not in found


def test_replicas_share_the_cores_and_give_them_back():
    before = torch.get_num_threads()
    try:
        torch.set_num_threads(4)
        assert threads.in_threads(lambda _: torch.get_num_threads(), [CPU] * 2) == [2, 2]
        assert threads.in_threads(lambda _: torch.get_num_threads(), [CPU] * 8) == [1] * 8
        assert torch.get_num_threads() == 4
    finally:
        torch.set_num_threads(before)


def test_threads_take_over_no_grad_and_autocast():
    class Tell(nn.Module):
        def forward(self, x):
            return torch.tensor([[torch.is_grad_enabled(), torch.is_autocast_enabled("cpu")]])

    wrapped, x = replicas.wrap(Tell(), [CPU] * 2), torch.ones(2, 1)
    assert wrapped(x).tolist() == [[True, False]] * 2
    with torch.no_grad(), torch.autocast("cpu", torch.bfloat16):
        assert wrapped(x).tolist() == [[False, True]] * 2


def test_an_error_comes_out_with_its_type_and_says_where():
    class Fragile(nn.Module):
        def forward(self, x):
            if x[0] == 2:
                raise KeyError("broken")
            return x

    with pytest.raises(KeyError, match="broken") as caught:
        replicas.wrap(Fragile(), [CPU] * 3)(torch.arange(3))
    assert caught.value.__notes__ == ["in replica 2 of 3, on cpu"]


def test_an_error_in_backward_comes_out_too():
    class Fragile(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return x.clone()

        @staticmethod
        def backward(ctx, gradient):
            raise ValueError("no way back")

    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.weight = nn.Parameter(torch.ones(1))

        def forward(self, x):
            return Fragile.apply(x * self.weight)

    outputs = replicas.wrap(Net(), [CPU] * 2)(torch.ones(2, 1))
    with pytest.raises(ValueError, match="no way back"):
        outputs.sum().backward()


def test_outputs_that_are_no_tensor_are_refused():
    class Pair(nn.Module):
        def forward(self, x):
            return x, x

    with pytest.raises(TypeError, match="joins tensors, and the model returned a tuple"):
        replicas.wrap(Pair(), [CPU] * 2)(torch.ones(2))


def test_losses_become_a_vector():
    class Loss(nn.Module):
        def forward(self, x):
            return x.mean()

    assert replicas.wrap(Loss(), [CPU] * 2)(torch.tensor([1.0, 3.0])).tolist() == [1, 3]


def test_a_model_elsewhere_is_refused_in_torch_s_own_words():
    with pytest.raises(RuntimeError, match=r"on device cpu .* found one of them on device: meta"):
        replicas.wrap(nn.Linear(1, 1).to("meta"), [CPU] * 2)(torch.ones(2, 1))


def test_it_is_a_data_parallel_for_all_who_ask(net):
    wrapped = replicas.wrap(net, [CPU] * 2)
    assert isinstance(wrapped, nn.DataParallel)
    assert models.unwrap(wrapped) is net
    assert list(wrapped.state_dict()) == [f"module.{name}" for name in net.state_dict()]
    other = Net().double()
    checkpoint.load_model(other, wrapped.state_dict())
    back = spread_over(Net().double(), 2)
    checkpoint.load_model(back, net.state_dict())
    x, _ = batch(4)
    torch.testing.assert_close(other(x), net(x))
    torch.testing.assert_close(back(x), net(x))


def test_evaluation_and_training_modes_reach_the_replicas():
    wrapped = replicas.wrap(nn.Dropout(0.5), [CPU] * 2)
    x = torch.ones(64, 8)
    assert torch.equal(wrapped.eval()(x), x)
    assert not torch.equal(wrapped.train()(x), x)


def test_follow_knows_whose_layer_it_is(net):
    wrapped = spread_over(net, 4)
    owner, seen = replicas.follow(wrapped), {}
    wrapped.module.last.register_forward_hook(lambda layer, given, _: seen.update({owner[layer]: len(given[0])}))
    wrapped(batch(10)[0])
    assert seen == {0: 3, 1: 3, 2: 3, 3: 1}


def test_time_steps_counts_the_four(net):
    wrapped, seconds = spread_over(net, 2), {}
    replicas.time_steps(wrapped, CPU, seconds)
    x, _ = batch(4)
    torch.testing.assert_close(wrapped(x), net(x))
    assert list(seconds) == list(replicas.STEPS)
    assert all(value > 0 for value in seconds.values())


# -- which devices ------------------------------------------------------------------------------


def gpus(monkeypatch, number):
    monkeypatch.setattr(torch.cuda, "device_count", lambda: number)


def names(devices):
    return [str(device) for device in devices]


@pytest.mark.parametrize(("cores", "number"), [(1, 2), (2, 2), (3, 3), (4, 4), (64, 4)])
def test_cores_stand_in(monkeypatch, cores, number):
    gpus(monkeypatch, 8)
    monkeypatch.setattr(torch, "get_num_threads", lambda: cores)
    assert names(spread(CPU)) == ["cpu"] * number
    assert names(spread(CPU, 4)) == ["cpu"] * 4


def test_all_gpus_the_main_one_first(monkeypatch):
    gpus(monkeypatch, 3)
    assert names(spread(torch.device("cuda", 1))) == ["cuda:1", "cuda:0", "cuda:2"]
    assert names(spread(torch.device("cuda", 1), 2)) == ["cuda:1", "cuda:0"]


def test_one_gpu_for_all(monkeypatch):
    gpus(monkeypatch, 1)
    assert names(spread(torch.device("cuda", 0))) == ["cuda:0"] * 2
    gpus(monkeypatch, 2)
    assert names(spread(torch.device("cuda", 0), 4)) == ["cuda:0"] * 4


def test_different_gpus_get_torch_s_own(monkeypatch):
    made = {}
    monkeypatch.setattr(nn, "DataParallel", lambda model, devices: made.update(devices=names(devices)) or model)
    replicas.wrap(nn.ReLU(), [torch.device("cuda", 0), torch.device("cuda", 1)])
    assert made == {"devices": ["cuda:0", "cuda:1"]}
    assert isinstance(replicas.wrap(nn.ReLU(), [torch.device("cuda", 0)] * 2), replicas.StandIn)
