"""What each stage of a pipeline takes for a microbatch, cut badly and cut by what its layers cost.

`layer` is the time of each layer by itself, forward and backward of one microbatch, measured on rank 0:
the first with the embedding, the last with the head and the loss. From these times follows the balanced
cut. The bad one gives each stage a layer, and the last one all the others. `balance` is what each stage
of both takes within a step, and `work` is that step.

Ranks need a core or a GPU each: hosts().one_device_each() says where there is one, and threads=1.
"""

import statistics

import torch
import torch.distributed as dist

from distlab import models, process, report, stages
from distlab.lessons.pipeline.case import Case, by_itself, least_disturbed, options, shape
from distlab.lessons.pipeline.pictures import balance


def layer_seconds(case: Case, layers: int, samples: int, rounds: int) -> list[float]:
    """The quickest forward and backward of each layer by itself.

    Args:
        case: for its batch and its model's size.
    """
    device, heads = case.model.me.device, next(iter(case.model.parts[0].blocks.values())).heads
    whole = models.LanguageModel(layers, case.model.embedding_dim, heads, case.batch.shape[1]).to(device)
    piece = case.batch[:samples], case.labels[:samples]
    calls = [by_itself(stages.stage_of(whole, [1] * layers, layer), *piece) for layer in range(layers)]

    def once(layer: int) -> float:
        start = process.now(device)
        output = calls[layer]()
        output.backward(torch.ones_like(output))
        return process.now(device) - start

    # The first round warms up; layers take turns.
    times = [[once(layer) for layer in range(layers)] for _ in range(rounds + 1)][1:]
    return [min(own) for own in zip(*times, strict=True)]


def of_a_microbatch(spans: list[dict]) -> float:
    """Milliseconds of a forward and a backward; medians, since other work on the machine lengthens some."""
    times: dict[str, list[float]] = {}
    for span in spans:
        times.setdefault(span["kind"], []).append(span["end"] - span["start"])
    return sum(map(statistics.median, times.values()))


def main() -> None:
    """Run the experiment on this rank. Reports `layer`, `work` and `balance`."""
    parser = options(__doc__)
    parser.add_argument("--schedule", choices=("gpipe", "1f1b"), default="1f1b", help="with one stage on each rank")
    parser.add_argument("--microbatches", type=int, default=8)
    parser.add_argument("--samples", type=int, default=1, help="microbatch size in sequences")
    parser.add_argument("--rounds", type=int, default=6)
    args = parser.parse_args()
    with process.group() as me:
        words = me, args, args.schedule, args.microbatches, args.samples
        ranks = me.world_size
        bad = Case(*words, cut=[1] * (ranks - 1) + [args.layers - ranks + 1])
        told = [layer_seconds(bad, args.layers, args.samples, args.rounds) if me.is_main else None]
        dist.broadcast_object_list(told)
        costs = told[0]
        cases = [bad, Case(*words, cut=balance.split(costs, ranks))]
        for case in cases:
            case.step()
        rounds = [[case.watched() for case in cases] for _ in range(args.rounds)]
        if me.is_main:
            for layer, seconds in enumerate(costs):
                report.log(me, "layer", layer=layer, milliseconds=1000 * seconds)
        for case, *steps in zip(cases, *rounds, strict=True):
            step, spans = least_disturbed(steps)
            report.log(me, "work", **shape(case), milliseconds=step, spans=spans)
            report.log(
                me,
                "balance",
                split=", ".join(map(str, case.plan.cut)),
                stage=case.plan.position,
                layers=case.plan.cut[case.plan.position],
                milliseconds=of_a_microbatch([span for _, own in steps for span in own]),
                step_milliseconds=step,
            )


if __name__ == "__main__":
    main()
