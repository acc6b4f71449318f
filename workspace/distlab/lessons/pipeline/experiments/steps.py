"""When each stage of a pipeline works in one step, by schedule and number of microbatches.

All microbatches have the same size, so a batch grows with their number and each is as much work as
any other: that is what the formula of the bubble says of a step. Cases take turns, round by round,
so that other work on the machine disturbs all alike, and of each the quickest step is reported, the
times of all beside. The update is left out. What a schedule does not allow is reported as the event
`skipped`, with the reason. With --alone also what one process takes for the same microbatches, and
what each of them takes when all ranks do so at once, each for itself.

Ranks need a core or a GPU each: hosts().one_device_each() says where there is one, and threads=1.
"""

from distlab import process, report, stages
from distlab.lessons.pipeline.case import Alone, Case, least_disturbed, options, shape


def main() -> None:
    """Run the experiment on this rank. Reports `skipped`, `alone` and `work`."""
    parser = options(__doc__)
    parser.add_argument("--schedules", nargs="+", choices=tuple(stages.SCHEDULES), default=list(stages.SCHEDULES))
    parser.add_argument("--microbatches", type=int, nargs="+", default=[1, 2, 4, 8, 16], help="numbers of microbatches")
    parser.add_argument("--samples", type=int, default=1, help="microbatch size in sequences")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--alone", action="store_true", help="measure one process too")
    args = parser.parse_args()
    with process.group() as me:
        alone = [Alone(me, args, microbatches, args.samples) for microbatches in args.microbatches if args.alone]
        cases = []
        for schedule in args.schedules:
            for microbatches in args.microbatches:
                try:
                    cases.append(Case(me, args, schedule, microbatches, args.samples))
                except ValueError as error:
                    report.log(me, "skipped", schedule=schedule, microbatches=microbatches, why=str(error))
        rounds: list[tuple] = []
        # The first round warms up: stages agree on shapes in their first step.
        for _ in range(args.rounds + 1):
            singles = [(single.milliseconds(), single.milliseconds(at_once=True)) for single in alone]
            rounds.append((singles, [case.watched() for case in cases]))
        silent, steps = zip(*rounds[1:], strict=True)
        for single, own in zip(alone, zip(*silent, strict=True), strict=True):
            by_one, at_once = zip(*own, strict=True)
            report.log(me, "alone", microbatches=single.microbatches, each=by_one, each_at_once=at_once)
        for case, own in zip(cases, zip(*steps, strict=True), strict=True):
            milliseconds, spans = least_disturbed(own)
            each = [step[0] for step in own]
            report.log(me, "work", **shape(case), milliseconds=milliseconds, each=each, spans=spans)


if __name__ == "__main__":
    main()
