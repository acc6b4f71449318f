"""What each rank sends in one step to its own host and to another, where pipelines and replicas meet.

Two pipelines beside each other, laid out in two ways: the pipeline runs from host to host and replicas
lie inside, or the other way round. The model's layers are large beside what they hand on. Bytes are
counted by receiver as ranks hand them over: activations and gradients between stages, and the mean of
gradients over the replicas. The sockets' own count stands beside, which knows no receiver.
"""

from collections.abc import Callable

import torch.distributed as dist
from torch.optim import AdamW

from distlab import process, report, stages
from distlab.lessons.pipeline.case import Case, options, shape, slowest
from distlab.measure.sent import tcp_bytes_sent

REPLICAS = 2
# What is inside a host -> what then goes between hosts.
LAYOUTS = {"replicas": "pipeline between hosts", "stages": "replicas between hosts"}


class Counted:
    """Bytes that a pipeline's stages hand over while this is open, by the rank that gets them."""

    def __init__(self, model: stages.Pipeline) -> None:
        self.stages = model.stages
        self.sent: dict[int, int] = {}

    def __enter__(self) -> "Counted":
        for stage in self.stages:
            stage.get_fwd_send_ops = self._counting(stage.get_fwd_send_ops)
            stage.get_bwd_send_ops = self._counting(stage.get_bwd_send_ops)
        return self

    def __exit__(self, *_: object) -> None:
        for stage in self.stages:
            del stage.get_fwd_send_ops, stage.get_bwd_send_ops

    def _counting(self, call: Callable[[int], list[dist.P2POp]]) -> Callable[[int], list[dist.P2POp]]:
        def counting(microbatch: int) -> list[dist.P2POp]:
            messages = call(microbatch)
            for message in messages:
                self.sent[message.peer] = self.sent.get(message.peer, 0) + message.tensor.nbytes
            return messages

        return counting


def of_mean(case: Case, me: process.Rank) -> dict[int, int]:
    """Bytes that this rank sends for the mean over two replicas, by receiver.

    In a ring of n each sends 2 (n - 1) / n of the gradients to the next: with two, all of them to the other.
    """
    (other,) = set(dist.get_process_group_ranks(case.model.mesh["replica"].get_group())) - {me.rank}
    return {other: sum(parameter.nbytes for parameter in case.model.parameters())}


def main() -> None:
    """Run the experiment on this rank. Reports `links`."""
    parser = options(__doc__)
    parser.add_argument("--schedule", choices=tuple(stages.SCHEDULES), default="1f1b")
    parser.add_argument("--microbatches", type=int, default=4)
    parser.add_argument("--samples", type=int, default=1, help="microbatch size in sequences")
    parser.add_argument("--rounds", type=int, default=3)
    args = parser.parse_args()
    with process.group() as me:
        hosts: list = [None] * me.world_size
        dist.all_gather_object(hosts, me.host)
        for inside, layout in LAYOUTS.items():
            words = me, args, args.schedule, args.microbatches, args.samples
            case = Case(*words, replicas=REPLICAS, inside=inside)
            optimizer = AdamW(case.model.parameters())
            case.step(optimizer)
            # A socket counts what has left it, and a rank may be done while its last bytes wait there:
            # they have left when all ranks have what they were to get.
            dist.barrier()
            before = tcp_bytes_sent()
            with Counted(case.model) as messages:
                case.step(optimizer)
            dist.barrier()
            after = tcp_bytes_sent()
            seconds = []
            for _ in range(args.rounds):
                dist.barrier()
                start = process.now(me.device)
                case.step(optimizer)
                seconds.append(slowest(process.now(me.device) - start, me))
            sent = [*messages.sent.items(), *of_mean(case, me).items()]
            report.log(
                me,
                "links",
                **shape(case),
                replicas=REPLICAS,
                layout=layout,
                to_other_host=sum(size for rank, size in sent if hosts[rank] != me.host),
                to_own_host=sum(size for rank, size in sent if hosts[rank] == me.host),
                tcp=after - before if me.backend == "gloo" and None not in (before, after) else None,
                milliseconds=1000 * min(seconds),
            )


if __name__ == "__main__":
    main()
