"""What graphs keep for their backward, against cases counted by hand."""

import threading

import pytest
import torch
from distlab.measure import kept
from torch import nn
from torch.utils.checkpoint import checkpoint

# float32: a piece (10, 4) goes in, relu's (10, 6) comes out and is kept for relu and twice for the product.
INPUT, OUTPUT = 4 * 10 * 4, 4 * 10 * 6


@pytest.fixture
def layer():
    return nn.Linear(4, 6)


def forward(layer, piece=None):
    output = layer(torch.randn(10, 4) if piece is None else piece).relu()
    return (output * output).sum()


def test_size_counts_memory_once():
    whole = torch.zeros(10)
    assert kept.size([whole, whole[:3], torch.zeros(2, dtype=torch.float64)]) == 40 + 16
    assert kept.size([]) == 0


def test_kept_bytes_leave_no_graph_behind(layer):
    assert kept.kept_bytes(lambda: forward(layer), layer.parameters()) == INPUT + OUTPUT
    assert layer.weight.grad is None


def test_alive_rises_with_forward_and_is_zero_after_backward(layer):
    with kept.Alive(layer.parameters()) as alive:
        loss = forward(layer)
    assert (alive.now, alive.most) == (INPUT + OUTPUT, INPUT + OUTPUT)
    loss.backward()
    assert (alive.now, alive.most) == (0, INPUT + OUTPUT)


def test_parameters_count_unless_they_are_left_out(layer):
    piece = torch.randn(10, 4, requires_grad=True)
    with kept.Alive() as alive:
        loss = forward(layer, piece)
    # The gradient of the input needs the weights.
    assert alive.now == INPUT + OUTPUT + layer.weight.nbytes
    del loss
    assert alive.now == 0


def test_the_highest_moment_is_that_of_the_schedule(layer):
    def most(order):
        alive, losses = kept.Alive(layer.parameters()), {}
        for kind, piece in order.split():
            if kind == "F":
                with alive:
                    losses[piece] = forward(layer)
            else:
                losses.pop(piece).backward()
        assert alive.now == 0
        return alive.most

    one = INPUT + OUTPUT
    assert most("F0 F1 F2 F3 B0 B1 B2 B3") == 4 * one
    assert most("F0 F1 B0 F2 B1 F3 B2 B3") == 2 * one
    assert most("F0 B0 F1 B1 F2 B2 F3 B3") == one


def test_what_two_graphs_keep_goes_with_the_last_of_them(layer):
    piece = torch.randn(10, 4)
    with kept.Alive(layer.parameters()) as alive:
        first, second = forward(layer, piece), forward(layer, piece)
    assert alive.now == INPUT + 2 * OUTPUT
    first.backward()
    assert alive.now == INPUT + OUTPUT
    second.backward()
    assert alive.now == 0


def test_a_backward_in_two_parts_lets_go_at_the_second(layer):
    piece = torch.randn(10, 4, requires_grad=True)
    with kept.Alive(layer.parameters()) as alive:
        loss = forward(layer, piece)
    torch.autograd.grad(loss, piece, retain_graph=True)
    assert alive.now == INPUT + OUTPUT
    torch.autograd.grad(loss, list(layer.parameters()))
    assert alive.now == 0


def test_memory_that_is_used_again_is_no_trouble(layer):
    alive = kept.Alive(layer.parameters())
    for _ in range(50):
        with alive:
            loss = forward(layer)
        loss.backward()
    assert (alive.now, alive.most) == (0, INPUT + OUTPUT)


def test_only_what_is_computed_inside_counts_each_under_its_own(layer):
    outer, inner = kept.Alive(layer.parameters()), kept.Alive(layer.parameters())
    with outer:
        first = forward(layer)
        with inner:
            second = forward(layer)
    third = forward(layer)
    assert (outer.now, inner.now) == (INPUT + OUTPUT, INPUT + OUTPUT)
    (first + second + third).backward()
    assert (outer.now, inner.now) == (0, 0)


def test_gradients_are_the_same_and_a_backward_may_run_in_another_thread(layer):
    piece = torch.randn(10, 4)
    (expected,) = torch.autograd.grad(forward(layer, piece), layer.weight)
    with kept.Alive(layer.parameters()) as alive:
        loss = forward(layer, piece)
    thread = threading.Thread(target=loss.backward)
    thread.start()
    thread.join()
    assert torch.equal(layer.weight.grad, expected)
    assert alive.now == 0


def test_a_graph_that_is_dropped_before_its_backward_leaves_nothing(layer):
    with kept.Alive(layer.parameters()) as alive:
        loss = forward(layer)
    del loss
    assert alive.now == 0


def test_a_gradient_can_have_a_gradient():
    def twice(x):
        (slope,) = torch.autograd.grad((x.sigmoid() * x).sum(), x, create_graph=True)
        return torch.autograd.grad(slope.square().sum(), x)[0]

    x = torch.randn(5, dtype=torch.float64, requires_grad=True)
    with kept.Alive() as alive:
        found = twice(x)
    assert torch.equal(found, twice(x)) and alive.now == 0


def test_activation_checkpointing_keeps_the_input_alone(layer):
    piece = torch.randn(10, 4, requires_grad=True)
    with kept.Alive(layer.parameters()) as alive:
        loss = checkpoint(lambda x: forward(layer, x), piece, use_reentrant=False)
    assert alive.most <= INPUT
    loss.backward()
    assert alive.now == 0
