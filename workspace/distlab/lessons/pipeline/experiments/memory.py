"""What each rank of a pipeline holds at the height of a step, by schedule, in bytes.

Activations are what forward keeps for backward, each storage counted once, at their peak: how many
microbatches a rank has at once follows from the schedule. `of_one` is what one microbatch keeps, of
all stages of a rank together, each run by itself. Messages and outputs are not in it.
"""

from torch.optim import AdamW

from distlab import process, report, stages
from distlab.lessons.pipeline.case import Case, by_itself, options, shape
from distlab.lessons.pipeline.experiments.split_memory import state
from distlab.measure.kept import Alive, kept_bytes, size


def of_one(case: Case, samples: int) -> int:
    """Bytes that the forward of one microbatch keeps, all of this rank's stages added up."""
    piece = case.batch[:samples].clone(), case.labels[:samples].clone()
    return sum(kept_bytes(by_itself(stage.submod, *piece), stage.submod.parameters()) for stage in case.model.stages)


def main() -> None:
    """Run the experiment on this rank. Reports `memory`."""
    parser = options(__doc__, width=64, context=32)
    parser.add_argument("--schedules", nargs="+", choices=tuple(stages.SCHEDULES), default=list(stages.SCHEDULES))
    parser.add_argument("--microbatches", type=int, default=8)
    parser.add_argument("--samples", type=int, default=4, help="microbatch size in sequences")
    args = parser.parse_args()
    with process.group() as me:
        for schedule in args.schedules:
            case = Case(me, args, schedule, args.microbatches, args.samples)
            own = list(case.model.parameters())
            optimizer = AdamW(own)
            # The first step makes the optimizer's state, and stages agree on shapes.
            case.step(optimizer)
            with Alive(own) as alive:
                case.work()
            report.log(
                me,
                "memory",
                **shape(case),
                batch_size=len(case.batch),
                activations=alive.most,
                of_one=of_one(case, args.samples),
                parameters=size(own),
                gradients=size(parameter.grad for parameter in own),
                optimizer=size(state(optimizer, own)),
            )


if __name__ == "__main__":
    main()
