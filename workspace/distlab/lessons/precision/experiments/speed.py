"""Time and memory of one training step: float32, autocast, channels_last, both, and compiled if asked for.

Rows take turns, round by round, so that other work on the machine disturbs all alike. Memory is that
of activations kept for backward, each storage counted once; on a GPU also the allocator's peak.
"""

import argparse
import shutil
import time

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.optim import SGD

from distlab import process, report
from distlab.measure import kept

# name -> (autocast, channels_last, compiled)
ROWS = {
    "float32": (False, False, False),
    "autocast": (True, False, False),
    "channels_last": (False, True, False),
    "both": (True, True, False),
    "both, compiled": (True, True, True),
}
# torch.compile writes C++ for a CPU; for a GPU it writes Triton, which needs a C compiler once.
COMPILERS = {"cpu": ("C++", ("g++", "clang++", "c++")), "cuda": ("C", ("gcc", "clang", "cc"))}


def net(width: int) -> nn.Module:
    """Convolutions with batch normalisation, where most of the time of an image network goes."""
    layers: list[nn.Module] = []
    for channels in (3, width, width):
        layers += [nn.Conv2d(channels, width, 3, padding=1, bias=False), nn.BatchNorm2d(width), nn.ReLU()]
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(width, 10))


def no_compiler(device: torch.device) -> str | None:
    """Why torch.compile cannot work here, or None."""
    language, names = COMPILERS[device.type]
    return None if any(map(shutil.which, names)) else f"no {language} compiler here"


class Row:
    """One way to do a step."""

    def __init__(self, me: process.Rank, name: str, args: argparse.Namespace, dtype: torch.dtype) -> None:
        self.device, self.dtype = me.device, dtype
        self.cast, turned, compiled = ROWS[name]
        layout = torch.channels_last if turned else torch.contiguous_format
        torch.manual_seed(0)
        images = torch.randn(args.batch_size, 3, args.pixels, args.pixels)
        self.images = images.to(me.device, memory_format=layout)
        self.labels = torch.randint(0, 10, (args.batch_size,)).to(me.device)
        net_itself = net(args.width).to(me.device, memory_format=layout)
        self.model = torch.compile(net_itself) if compiled else net_itself
        self.parameters = list(net_itself.parameters())
        self.optimizer = SGD(net_itself.parameters(), lr=0.01)
        self.times: list[float] = []
        self.first = 0.0

    def forward(self) -> Tensor:
        """The loss."""
        with torch.autocast(self.device.type, self.dtype, enabled=self.cast):
            return F.cross_entropy(self.model(self.images), self.labels)

    def step(self) -> float:
        """One training step; returns its seconds."""
        start = process.now(self.device)
        self.forward().backward()
        self.optimizer.step()
        self.optimizer.zero_grad()
        return process.now(self.device) - start

    def peak_bytes(self) -> int | None:
        """What the GPU's allocator held at most in one step; None on a CPU, which has no such count."""
        if self.device.type != "cuda":
            return None
        torch.cuda.reset_peak_memory_stats(self.device)
        before = torch.cuda.memory_allocated(self.device)
        self.step()
        return torch.cuda.max_memory_allocated(self.device) - before


def main() -> None:
    """Run the experiment on this rank. Reports `row` and `machine`."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=6)
    parser.add_argument("--seconds", type=float, default=2.0, help="that one row may take, its first two steps apart")
    parser.add_argument("--batch-size", type=int, help="images; 8 on a CPU, 256 on a GPU")
    parser.add_argument("--width", type=int, default=64, help="channels of each layer")
    parser.add_argument("--pixels", type=int, default=24, help="height and width of an image")
    parser.add_argument(
        "--compile",
        action=argparse.BooleanOptionalAction,
        default=False,
        help="measure torch.compile too, which takes half a minute",
    )
    args = parser.parse_args()
    with process.group() as me:
        args.batch_size = args.batch_size or (256 if me.device.type == "cuda" else 8)
        dtype = process.amp_dtype(me)
        rows: dict[str, Row] = {}
        left_out: dict[str, str] = {}
        for name, (_, _, compiled) in ROWS.items():
            why = no_compiler(me.device) if args.compile else "not asked for"
            if compiled and why:
                left_out[name] = why
                continue
            start = time.perf_counter()
            row = Row(me, name, args, dtype)
            try:
                row.step()
            except Exception as error:
                if not compiled:
                    raise
                # Headers or Triton can be missing too, which shows only when the model is first run.
                left_out[name] = f"torch.compile: {type(error).__name__}"
                me.print(str(error))
                continue
            row.first = time.perf_counter() - start
            rows[name] = row
        for _ in range(args.rounds):
            for row in rows.values():
                if not row.times or sum(row.times) < args.seconds:
                    row.times.append(row.step())
        for name, row in rows.items():
            report.log(
                me,
                "row",
                name=name,
                milliseconds=1000 * min(row.times),
                first_seconds=row.first,
                kept_bytes=kept.kept_bytes(row.forward, row.parameters),
                peak_bytes=row.peak_bytes(),
                why_not=None,
            )
        for name, why in left_out.items():
            report.log(me, "row", name=name, why_not=why)
        report.log(
            me,
            "machine",
            device=process.device_name(me.device),
            units=process.units(me.device),
            vectors=torch.backends.cpu.get_cpu_capability(),
            dtype=str(dtype).removeprefix("torch."),
            threads=torch.get_num_threads(),
        )


if __name__ == "__main__":
    main()
