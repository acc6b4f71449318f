"""Which stages a rank has. Options that do not fit are refused before anything starts."""

import argparse
from dataclasses import dataclass

from distlab import loop
from distlab.errors import SettingError
from distlab.process import Rank
from distlab.stages.cut import evenly, require_cut

# Stages per rank, and whether their order is reversed in the second round: 0 1 2 | 2 1 0.
SCHEDULES = {"gpipe": (1, False), "1f1b": (1, False), "interleaved": (2, False), "zero-bubble": (2, True)}


def options(description: str | None = None) -> argparse.ArgumentParser:
    """A parser with `loop.text_options`, and what `plan` and `Pipeline` read."""
    parser = loop.text_options(description)
    add = parser.add_argument
    add("--schedule", choices=tuple(SCHEDULES), default="1f1b", help="order in which stages work on microbatches")
    add("--microbatches", type=loop.whole(1), default=4, metavar="M", help="microbatches of a batch")
    add("--cut", type=_numbers, metavar="N,N,...", help="layers of each stage; as equal as can be by default")
    add("--trace", action="store_true", help="let torch.export find the stages, instead of taking the model's blocks")
    add("--replicas", type=loop.whole(1), default=1, help="data-parallel replicas of the pipeline")
    add(
        "--inside",
        choices=("replicas", "stages"),
        default="replicas",
        help="innermost mesh dimension: its ranks share a host",
    )
    add("--clip", type=loop.real(above=0), metavar="NORM", help="clip the gradient's norm over all stages to this")
    return parser


def _numbers(text: str) -> tuple[int, ...]:
    try:
        return tuple(int(part) for part in text.split(","))
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} is not a list of whole numbers such as 2,2,2,2") from None


@dataclass(frozen=True)
class Plan:
    """A rank's place in a pipeline, and what its stages are.

    Attributes:
        ranks: ranks of one pipeline.
        position: this rank's among them, from 0.
        replicas: data-parallel replicas of the pipeline.
        replica: which of them this rank is in.
        inside: "replicas" or "stages": the innermost mesh dimension, whose ranks are neighbours and share a host.
        cut: layers of each stage, over the whole pipeline.
        own: stages of this rank, earliest first.
    """

    schedule: str
    microbatches: int
    ranks: int
    position: int
    replicas: int
    replica: int
    inside: str
    cut: tuple[int, ...]
    own: tuple[int, ...]

    @property
    def is_first(self) -> bool:
        """This rank has the first stage: it takes the batch."""
        return 0 in self.own

    @property
    def is_last(self) -> bool:
        """This rank has the last stage: it has logits and loss."""
        return self.position == self.last

    @property
    def last(self) -> int:
        """The position of the rank with the last stage."""
        return rank_of(len(self.cut) - 1, self.schedule, self.ranks)


def rank_of(stage: int, schedule: str, ranks: int) -> int:
    """The position of the rank that has a stage.

    >>> [rank_of(stage, "interleaved", 2) for stage in range(4)]
    [0, 1, 0, 1]
    >>> [rank_of(stage, "zero-bubble", 2) for stage in range(4)]
    [0, 1, 1, 0]
    """
    turn, place = divmod(stage, ranks)
    return ranks - 1 - place if SCHEDULES[schedule][1] and turn % 2 else place


def plan(args: argparse.Namespace, me: Rank) -> Plan:
    """Work out a rank's place from the options.

    Raises:
        SettingError: they do not fit each other or the number of ranks; on every rank alike.
    """
    if me.world_size % args.replicas:
        raise SettingError(
            f"{me.world_size} ranks cannot make {args.replicas} pipelines of the same length: "
            f"use --replicas with a divisor of {me.world_size}"
        )
    ranks = me.world_size // args.replicas
    position, replica = divmod(me.rank, args.replicas)
    if args.inside == "stages":
        replica, position = divmod(me.rank, ranks)
    _require_microbatches(args, ranks)
    _require_traceable(args)
    stages = ranks * SCHEDULES[args.schedule][0]
    cut = args.cut or evenly(args.layers, stages)
    require_cut(cut, args.layers, stages)
    own = tuple(stage for stage in range(stages) if rank_of(stage, args.schedule, ranks) == position)
    return Plan(args.schedule, args.microbatches, ranks, position, args.replicas, replica, args.inside, tuple(cut), own)


def _require_microbatches(args: argparse.Namespace, ranks: int) -> None:
    size, pieces, schedule = args.batch_size, args.microbatches, args.schedule
    divisors = [number for number in range(1, size + 1) if size % number == 0]
    fitting = [number for number in divisors if _suits(number, schedule, ranks)]
    offer = f"use one of {', '.join(map(str, fitting))}" if fitting else f"use a multiple of {ranks} as --batch-size"
    if size % pieces:
        raise SettingError(f"a batch of {size} is not divisible by {pieces} microbatches: {offer}")
    if pieces in fitting:
        return
    if schedule == "1f1b":
        raise SettingError(f"1f1b needs a microbatch for each of its {ranks} stages, not {pieces}: {offer}")
    raise SettingError(
        f"interleaved goes round in turns of {ranks} ranks, and {pieces} microbatches are no multiple of that: {offer}"
    )


def _suits(microbatches: int, schedule: str, ranks: int) -> bool:
    if schedule == "interleaved":
        return microbatches % ranks == 0
    return schedule != "1f1b" or microbatches >= ranks


def _require_traceable(args: argparse.Namespace) -> None:
    if args.trace and args.tied:
        raise SettingError("tracing cannot cut a matrix that two stages share: leave out --trace or --tied")
    if args.trace and args.schedule == "zero-bubble":
        # torch expects the stage after a traced one on the next rank.
        raise SettingError("traced stages cannot turn round at the last rank as zero-bubble's do: leave out --trace")
