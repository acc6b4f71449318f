"""One profiled training step: when backward computes and when gradients travel, by bucket size."""

import argparse
import os

import torch
import torch.distributed as dist
from torch import nn
from torch.nn import functional as F
from torch.nn.parallel import DistributedDataParallel
from torch.profiler import ProfilerActivity, profile, record_function

from distlab import process, report
from distlab.measure import trace

# The profiler's library greets on stderr of every rank otherwise.
os.environ.setdefault("KINETO_LOG_LEVEL", "99")


def net(layers: int, width: int) -> nn.Module:
    """Equal layers, so that equal buckets take equally long."""
    middle = [part for _ in range(layers) for part in (nn.Linear(width, width), nn.ReLU())]
    return nn.Sequential(*middle, nn.Linear(width, 10))


def bucket_layers(model: DistributedDataParallel) -> list[list[int]]:
    """The layers in each bucket, in the order in which DDP sends buckets."""
    names = [name for name, _ in model.module.named_parameters()]
    buckets = model._get_ddp_logging_data()["rebuilt_per_bucket_param_indices"].split(",")
    layers = [[int(names[int(index)].split(".")[0]) // 2 for index in bucket.split()] for bucket in buckets]
    return [list(dict.fromkeys(bucket)) for bucket in layers]


def main() -> None:
    """Run the experiment on this rank. Reports `timeline`."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--bucket-mb", type=float, nargs="+", default=[1000, 4], help="bucket sizes to compare")
    parser.add_argument("--layers", type=int, default=6)
    parser.add_argument("--width", type=int, default=768)
    parser.add_argument("--batch-size", type=int, help="samples of one rank; 256 over gloo, 16384 over nccl")
    args = parser.parse_args()
    with process.group() as me:
        activities = [ProfilerActivity.CPU] + [ProfilerActivity.CUDA] * (me.device.type == "cuda")
        # Enough work for a step to be seen next to its communication.
        samples = args.batch_size or (256 if me.backend == "gloo" else 16384)
        inputs = torch.randn(samples, args.width, device=me.device)
        labels = torch.randint(0, 10, (samples,), device=me.device)
        for megabytes in args.bucket_mb:
            torch.manual_seed(0)
            model = net(args.layers, args.width).to(me.device)
            model = DistributedDataParallel(model, bucket_cap_mb=megabytes, gradient_as_bucket_view=True)

            def step(model: nn.Module = model) -> None:
                model.zero_grad()
                F.cross_entropy(model(inputs), labels).backward()
                if me.device.type == "cuda":
                    torch.cuda.synchronize()

            # DDP settles the order of its buckets in the first step.
            for _ in range(3):
                step()
            dist.barrier()
            with profile(activities=activities) as seen, record_function(trace.STEP):
                step()
            report.log(
                me, "timeline", bucket_mb=megabytes, buckets=bucket_layers(model), spans=trace.spans(seen.events())
            )


if __name__ == "__main__":
    main()
