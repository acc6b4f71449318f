"""The language model over two devices of one process: who works when, and what it costs to send a batch in pieces.

`work` is one plain step: when each device's stage went forward and backward. `sweep` is the time of a
step for several numbers of pieces, which take turns, round by round, so that other work on the machine
disturbs all alike. Pieces can only save time where the two devices are different: `overlaps` says so.
"""

import argparse
from typing import TypeVar

from torch import Tensor
from torch.nn import functional as F
from torch.optim import AdamW

from distlab import loop, process, report
from distlab.lessons.pipeline.case import options, text, whole
from distlab.stages.devices import OnDevices

STAGES = 2

Kind = TypeVar("Kind", bound=OnDevices)


class Timed(OnDevices):
    """Notes when each stage works; a transfer counts with the later of the two stages.

    All devices are waited for in between, so only a plain step keeps its pace.
    """

    def start(self) -> None:
        """A step begins."""
        self.spans: list[dict] = []
        self.began = process.now(*self.devices)
        self.since = 0.0

    def until_now(self, kind: str, stage: int) -> None:
        """This stage has worked since the last of these calls."""
        now = 1000 * (process.now(*self.devices) - self.began)
        self.spans.append({"kind": kind, "stage": stage, "microbatch": 0, "start": self.since, "end": now})
        self.since = now

    def work(self, stage: int, x: Tensor) -> Tensor:
        """A stage's forward; notes when it began and ended, forward and backward."""
        output = super().work(stage, x)
        self.until_now("forward", stage)
        if stage < len(self.stages) - 1:
            # When this gradient is there, backward of the later stage is done, weights included.
            output.register_hook(lambda _: self.until_now("backward", stage + 1))
        return output


def plain_step(model: Timed, batch: Tensor, labels: Tensor) -> list[dict]:
    """The spans of a forward and a backward; the loss goes with the last stage."""
    model.zero_grad()
    model.start()
    loss = F.cross_entropy(model(batch), labels)
    loss.backward()
    model.until_now("backward", 0)
    return model.spans


def results(model: OnDevices, batch: Tensor, labels: Tensor) -> tuple[Tensor, list[Tensor]]:
    """Logits and gradients."""
    model.zero_grad()
    logits = model(batch)
    F.cross_entropy(logits, labels).backward()
    return logits.detach(), [parameter.grad.clone() for parameter in model.parameters()]


def largest(ones: list[Tensor], others: list[Tensor]) -> float:
    """The largest difference between some tensors and others."""
    return max((mine - other).abs().max().item() for mine, other in zip(ones, others, strict=True))


def sweep(me: process.Rank, model: OnDevices, batch: Tensor, labels: Tensor, args: argparse.Namespace) -> None:
    """Report an event `sweep` for each number of pieces."""
    # A learning rate of 0: the update takes its time and changes nothing, so results can be compared.
    optimizer = AdamW(model.parameters(), lr=0.0)
    seconds: dict[int, list[float]] = {splits: [] for splits in args.splits}
    # The first round warms up.
    for _ in range(args.rounds + 1):
        for model.microbatches in args.splits:
            start = process.now(*model.devices)
            loop.train_step(model, optimizer, batch, labels, share=1.0, update=True)
            seconds[model.microbatches].append(process.now(*model.devices) - start)
    model.microbatches = 1
    plain, gradients = results(model, batch, labels)
    for model.microbatches in args.splits:
        logits, others = results(model, batch, labels)
        report.log(
            me,
            "sweep",
            splits=model.microbatches,
            batch_size=len(batch),
            milliseconds=1000 * min(seconds[model.microbatches][1:]),
            output_difference=largest([logits], [plain]),
            gradient_difference=largest(others, gradients) / max(gradient.abs().max().item() for gradient in gradients),
            overlaps=len(set(model.devices)) > 1,
            devices=[str(device) for device in model.devices],
        )


def main() -> None:
    """Run the experiment on this rank. Reports `sweep` and `work`."""
    parser = options(__doc__, width=64)
    parser.add_argument("--batch-size", type=int, default=32)
    parser.add_argument("--splits", type=int, nargs="+", default=[1, 2, 4, 8, 16])
    parser.add_argument("--rounds", type=int, default=6)
    args = parser.parse_args()
    with process.alone() as me:
        batch, labels = text(me, whole(me, args), args.batch_size)
        devices = me.devices(STAGES)[::-1]

        def build(kind: type[Kind]) -> Kind:
            return kind(whole(me, args), devices)

        model = build(Timed)
        # The first one warms up.
        steps = [plain_step(model, batch, labels) for _ in range(args.rounds + 1)][1:]
        report.log(
            me,
            "work",
            schedule="naive",
            ranks=STAGES,
            stages=STAGES,
            microbatches=1,
            spans=min(steps, key=lambda spans: spans[-1]["end"]),
            devices=[str(device) for device in devices],
        )
        sweep(me, build(OnDevices), batch, labels, args)


if __name__ == "__main__":
    main()
