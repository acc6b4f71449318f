"""Networks by name: shapes, sizes, seeds."""

import subprocess
import sys

import pytest
import torch
from distlab import models
from torch import nn

CODE = """
import torch
from distlab import models
torch.rand(5)
print([models.build(name, 1, 10, 28, 28, seed=4).state_dict()[key].double().sum().item()
       for name, key in (("small-cnn", "3.weight"), ("mlp", "1.weight"))])
"""


@pytest.mark.parametrize("name", models.names())
@pytest.mark.parametrize("shape", [(1, 28, 28), (3, 96, 64), (1, 8, 8), (4, 5, 7)])
def test_any_image_size_and_number_of_channels(name, shape):
    logits = models.build(name, shape[0], 7, *shape[1:])(torch.zeros(2, *shape))
    assert logits.shape == (2, 7)


@pytest.mark.parametrize("name", ["small-cnn", "mlp"])
def test_the_seed_decides_and_the_caller_s_random_numbers_go_on(name):
    torch.manual_seed(0)
    expected = torch.rand(3)
    torch.manual_seed(0)
    one = models.build(name, 1, 10, 28, 28, seed=4)
    assert torch.equal(torch.rand(3), expected)
    two, other = (models.build(name, 1, 10, 28, 28, seed=seed) for seed in (4, 5))
    vectors = [nn.utils.parameters_to_vector(net.parameters()) for net in (one, two, other)]
    assert torch.equal(vectors[0], vectors[1])
    assert not torch.equal(vectors[0], vectors[2])


def test_another_process_gets_the_same_weights_and_does_not_load_torchvision():
    code = CODE + "import sys; assert 'torchvision' not in sys.modules"
    output = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    mine = [
        models.build(name, 1, 10, 28, 28, seed=4).state_dict()[key].double().sum().item()
        for name, key in (("small-cnn", "3.weight"), ("mlp", "1.weight"))
    ]
    assert output.strip() == str(mine)


def test_small_cnn_has_little_to_send():
    assert sum(weight.numel() for weight in models.build("small-cnn", 1, 10, 28, 28).parameters()) == 9930


def test_unknown_name():
    with pytest.raises(ValueError, match="no model 'vgg': use one of small-cnn, mlp, resnet18"):
        models.build("vgg", 1, 10, 28, 28)


def test_unwrap():
    net = nn.Linear(2, 2)
    assert models.unwrap(nn.DataParallel(net)) is net
    assert models.unwrap(net) is net
    # A network's own part called `module` is no wrapper.
    net.module = nn.Linear(2, 2)
    assert models.unwrap(net) is net
