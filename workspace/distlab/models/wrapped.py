"""A network without its wrapper."""

from torch import nn
from torch.nn.parallel import DataParallel, DistributedDataParallel


def unwrap(model: nn.Module) -> nn.Module:
    """The network itself, without DistributedDataParallel or DataParallel around it."""
    while isinstance(model, (DataParallel, DistributedDataParallel)):
        model = model.module
    return model
