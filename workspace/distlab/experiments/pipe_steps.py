"""When each stage of a pipeline works in one step, by schedule and number of microbatches.

All microbatches have the same size, so a batch grows with their number and each is as much work as
any other: that is what the formula of the bubble says of a step. Cases take turns, round by round,
so that other work on the machine disturbs all alike, and of each the quickest step is reported. The
update is left out. What a schedule does not allow is reported as the event `skipped`, with the reason.

Ranks need a core or a GPU each: hosts().a_seat_each() says where there is one, and threads=1.
"""

from distlab import process, report, stages
from distlab.experiments.pipe_case import Case, least_disturbed, options, shape


def main() -> None:
    parser = options(__doc__)
    parser.add_argument("--schedules", nargs="+", choices=tuple(stages.SCHEDULES), default=list(stages.SCHEDULES))
    parser.add_argument("--pieces", type=int, nargs="+", default=[1, 2, 4, 8, 16], help="numbers of microbatches")
    parser.add_argument("--samples", type=int, default=2, help="sequences of one microbatch")
    parser.add_argument("--rounds", type=int, default=4)
    args = parser.parse_args()
    with process.group() as me:
        cases = []
        for schedule in args.schedules:
            for microbatches in args.pieces:
                try:
                    cases.append(Case(me, args, schedule, microbatches, args.samples))
                except ValueError as error:
                    report.log(me, "skipped", schedule=schedule, microbatches=microbatches, why=str(error))
        for case in cases:
            # Stages agree on shapes in their first step.
            case.step()
        rounds = [[case.watched() for case in cases] for _ in range(args.rounds)]
        for case, *steps in zip(cases, *rounds, strict=True):
            milliseconds, spans = least_disturbed(steps)
            report.log(me, "work", **shape(case), milliseconds=milliseconds, spans=spans)


if __name__ == "__main__":
    main()
