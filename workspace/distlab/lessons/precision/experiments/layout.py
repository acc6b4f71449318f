"""Where numbers lie in memory in both formats of images, who keeps channels_last, and who loses it in silence."""

import warnings
from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.nn.parallel import DistributedDataParallel

from distlab import process, report

SHOWN = (1, 3, 2, 4)


class Shuffle(nn.Module):
    """Mixes channels of two groups, as ShuffleNet does (Zhang et al. 2017, arXiv 1707.01083, section 3.1)."""

    def forward(self, images: Tensor) -> Tensor:
        """Images (N, C, H, W) with their channels mixed by a reshape, same shape."""
        count, channels, height, width = images.shape
        return images.reshape(count, 2, channels // 2, height, width).transpose(1, 2).reshape(images.shape)


def layout(tensor: Tensor) -> str:
    """'NCHW', 'NHWC', 'both' where the shape leaves no difference, or 'neither'."""
    usual, turned = tensor.is_contiguous(), tensor.is_contiguous(memory_format=torch.channels_last)
    return {(True, False): "NCHW", (False, True): "NHWC", (True, True): "both", (False, False): "neither"}[
        usual, turned
    ]


def places(tensor: Tensor) -> list[list[int]]:
    """[channel, row, column] at each address of the first image, in the order in which they lie in memory."""
    indices = [
        [c, h, w] for c in range(tensor.shape[1]) for h in range(tensor.shape[2]) for w in range(tensor.shape[3])
    ]
    _, *steps = tensor.stride()
    return sorted(indices, key=lambda index: sum(i * step for i, step in zip(index, steps, strict=True)))


def layouts(model: nn.Module, images: Tensor) -> list[dict[str, str]]:
    """What each layer is given and gives, of those that give images: one forward pass, watched by hooks."""
    seen: list[dict[str, str]] = []

    def look(name: str) -> Callable[[nn.Module, tuple[Tensor, ...], Tensor], None]:
        def hook(layer: nn.Module, inputs: tuple[Tensor, ...], output: Tensor) -> None:
            if output.dim() == 4:
                seen.append({"layer": name, "given": layout(inputs[0]), "gives": layout(output)})

        return hook

    leaves = [(name, layer) for name, layer in model.named_modules() if not list(layer.children())]
    hooks = [layer.register_forward_hook(look(f"{name} {type(layer).__name__}")) for name, layer in leaves]
    with torch.no_grad():
        model(images)
    for hook in hooks:
        hook.remove()
    return seen


def net() -> nn.Module:
    """A few layers with something in the middle that reshapes."""
    return nn.Sequential(
        nn.Conv2d(3, 8, 3, padding=1),
        nn.BatchNorm2d(8),
        nn.ReLU(),
        Shuffle(),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Conv2d(8, 16, 3, padding=1),
        nn.ReLU(),
        nn.AdaptiveAvgPool2d(2),
        nn.Flatten(),
        nn.Linear(64, 10),
    )


def operations(images: Tensor) -> dict[str, Tensor]:
    """What common operations make of a batch in channels_last."""
    return {
        "relu(x)": F.relu(images),
        "x + x": images + images,
        "max_pool2d(x, 2)": F.max_pool2d(images, 2),
        "cat([x, x], dim=1)": torch.cat([images, images], dim=1),
        "x.contiguous()": images.contiguous(),
        "stack(list(x)), as a loader does": torch.stack(list(images)),
        "x[:, :2], some channels": images[:, :2],
        "x.reshape(...) that mixes channels": Shuffle()(images),
        "x[:, :1].clone(), one channel": images[:, :1].clone(),
    }


def gradients(me: process.Rank, turn_first: bool) -> tuple[list[str], str]:
    """DDP with the model turned before or after it is wrapped: warnings of one step, and the layout of a gradient."""
    torch.manual_seed(0)
    bare = net().to(me.device)
    images = torch.randn(4, 3, 16, 16, device=me.device).contiguous(memory_format=torch.channels_last)
    if turn_first:
        bare = bare.to(memory_format=torch.channels_last)
    model = DistributedDataParallel(bare)
    if not turn_first:
        model = model.to(memory_format=torch.channels_last)
    always = torch.is_warn_always_enabled()
    torch.set_warn_always(True)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        model(images).sum().backward()
    torch.set_warn_always(always)
    words = [str(warning.message).split(". ")[0].split("\n")[0] for warning in caught]
    return [message for message in words if "strides" in message], layout(bare[6].weight.grad)


def main() -> None:
    """Run the experiment on this rank. Reports `places`, `operation`, `layer` and `strides`."""
    with process.group() as me:
        images = torch.randn(SHOWN, device=me.device)
        for name, memory_format in (("NCHW", torch.contiguous_format), ("NHWC", torch.channels_last)):
            own = images.contiguous(memory_format=memory_format)
            report.log(me, "places", name=name, shape=list(own.shape), strides=list(own.stride()), places=places(own))
        batch = torch.randn(4, 8, 8, 8, device=me.device).contiguous(memory_format=torch.channels_last)
        for operation, result in operations(batch).items():
            report.log(me, "operation", operation=operation, given="NHWC", gives=layout(result))
        model = net().to(me.device, memory_format=torch.channels_last)
        colour = torch.randn(4, 3, 16, 16, device=me.device).contiguous(memory_format=torch.channels_last)
        for row in layouts(model, colour):
            report.log(me, "layer", **row)
        for turn_first in (True, False):
            said, kept = gradients(me, turn_first)
            report.log(me, "strides", turned="before" if turn_first else "after", said=said, gradient=kept)


if __name__ == "__main__":
    main()
