"""The one training loop: epochs of updates, what they report, and where they can be resumed."""

import argparse
import math
import os
import sys
from dataclasses import replace
from pathlib import Path

import torch
from torch import Tensor, nn
from torch.optim import Optimizer
from torch.utils.data import DataLoader
from tqdm import tqdm

from distlab import report
from distlab.loop import resume
from distlab.loop.collectives import Collectives
from distlab.loop.rate import WarmUp
from distlab.loop.resume import Keep, Position
from distlab.loop.samples import own_samples, rest_of_epoch, shares, total_samples
from distlab.loop.step import Batch, LossError, NotFinite, Step, no_sync_unless, train_step, updates
from distlab.loop.tally import Clock, Tally, averages
from distlab.loop.validation import evaluate
from distlab.process import Rank

SECONDS_BETWEEN_BARS = 2.0


def fit(
    me: Rank,
    model: nn.Module,
    optimizer: Optimizer,
    train: DataLoader,
    val: DataLoader,
    args: argparse.Namespace,
    *,
    step: Step = train_step,
    collectives: Collectives | None = None,
    keep: Keep | None = None,
) -> list[dict]:
    """Train, and report each epoch from every rank.

    Every rank must have the same number of batches, as DistributedSampler gives it. Loss and
    accuracy are sums over all ranks divided once, each sample counted once; images per second
    leave out the first update of an epoch.

    Each rank reports `setup`, an `epoch` for each, and `end`: see `distlab.records`.

    Args:
        optimizer: with the learning rate to reach after the warm-up; it starts from --lr.
        train: training batches of this rank; its sampler is told each new epoch.
        val: this rank's part of the validation samples.
        args: from `options`.
        step: what to do with a batch, instead of `train_step`.
        collectives: instead of those of torch.distributed.
        keep: by name, what else a checkpoint saves and restores, such as {"scaler": scaler}.

    Returns:
        The records of the epochs.

    Raises:
        LossError: the loss is no finite number; names rank, epoch and step.
        CheckpointError: a checkpoint to resume from is missing, damaged or does not fit.
        CheckpointNotWritten, ReportNotWritten: a file cannot be written; says which.
    """
    return _Fit(me, model, optimizer, train, val, args, step, collectives or Collectives(), keep or {}).run()


class _Fit:
    """What the parts of `fit` share."""

    def __init__(
        self,
        me: Rank,
        model: nn.Module,
        optimizer: Optimizer,
        train: DataLoader,
        val: DataLoader,
        args: argparse.Namespace,
        step: Step,
        collectives: Collectives,
        keep: Keep,
    ) -> None:
        self.me, self.model, self.optimizer, self.args = me, model, optimizer, args
        self.train, self.val, self.step, self.collectives, self.keep = train, val, step, collectives, keep
        self.samples = total_samples(train)
        self.rate = WarmUp(optimizer, args.lr, args.warmup_epochs)
        self.checkpoint = resume.checkpoint_path(args)
        self.steps_now = 0

    def run(self) -> list[dict]:
        # With one seed for all, dropout would drop the same units on every rank.
        torch.manual_seed(self.args.seed + self.me.rank)
        at = resume.start(self.args, self.me, self.model, self.optimizer, self.train, self.collectives, self.keep)
        self._report_setup()
        if at.epoch >= self.args.epochs:
            self.me.print(f"nothing left to train: {at.epoch} epochs are done and --epochs is {self.args.epochs}")
        epochs = []
        while at.epoch < self.args.epochs and not self._is_done():
            epochs.append(self._epoch(at))
        self._report_end(epochs, at)
        return epochs

    def _is_done(self) -> bool:
        return self.args.max_steps is not None and self.steps_now >= self.args.max_steps

    def _epoch(self, at: Position) -> dict:
        """Train to the end of the epoch or to --max-steps; move `at` there."""
        number, tally, clock = at.epoch + 1, Tally(self.me.device), Clock(self.me.device)
        rate = self._updates(at, tally, clock)
        seconds, per_second = clock.stop()
        at.sums = tally.totals(self.collectives, at.sums)
        loss, accuracy = averages(at.sums)
        if not math.isfinite(loss):
            raise LossError(f"the loss of epoch {number} over all ranks is {loss}: lower --lr")
        if at.consumed >= self.samples:
            at.epoch, at.consumed, at.sums = number, 0, [0.0, 0.0, 0.0]
        val_sums = evaluate(self.model, self.val, self.me.device, self.collectives)
        val_loss, val_accuracy = averages(val_sums)
        record = {
            "epoch": number,
            "steps": at.steps,
            "lr": rate,
            "loss": loss,
            "accuracy": accuracy,
            "val_loss": val_loss,
            "val_accuracy": val_accuracy,
            "val_images": int(val_sums[2]),
            "images": clock.images,
            "seconds": seconds,
            "images_per_second": per_second,
            # The stages of a pipeline share a batch, so each of their ranks counts the same samples.
            "images_per_second_all": self._sum(per_second) * shares(self.train) / self.me.world_size,
        }
        report.log(self.me, "epoch", **record)
        if self.checkpoint:
            self._save(self.checkpoint, at)
        self.me.print(
            f"epoch {number}: loss {loss:.3f}, accuracy {accuracy:.3f}, validation loss {val_loss:.3f}, "
            f"accuracy {val_accuracy:.3f}, {record['images_per_second_all']:,.0f} {self.args.samples}/s"
        )
        return record

    def _updates(self, at: Position, tally: Tally, clock: Clock) -> float:
        """The epoch's updates; `at` counts what all ranks consume. Returns the last learning rate."""
        batches, rate = self._batches(at), 0.0
        own, every = own_samples(batches), self.args.checkpoint_every
        self.model.train()
        with self._bar(at) as bar:
            for update in updates(batches, self.args.accumulate):
                rate = self.rate.set(at.epoch + at.consumed / self.samples)
                size, real = self._update(update, own - clock.images, at, tally)
                clock.updated(real)
                consumed = min(size * shares(self.train), self.samples - at.consumed)
                at.consumed += consumed
                at.steps += 1
                self.steps_now += 1
                bar.update(consumed)
                if self._is_done():
                    break
                if self.checkpoint and every and at.steps % every == 0 and at.consumed < self.samples:
                    self._save(self.checkpoint, replace(at, sums=tally.totals(self.collectives, at.sums)))
        return rate

    def _update(self, update: list[Batch], own_left: int, at: Position, tally: Tally) -> tuple[int, int]:
        """One update from one batch or several. Returns its samples, with and without padding."""
        size, counted = sum(len(labels) for _, labels in update), 0
        for index, (images, labels) in enumerate(update, 1):
            images, labels = self._on_device(images), self._on_device(labels)
            last = index == len(update)
            try:
                with no_sync_unless(last, self.model):
                    loss, logits = self.step(self.model, self.optimizer, images, labels, len(labels) / size, last)
            except NotFinite as error:
                raise LossError(
                    f"rank {self.me.rank} on {self.me.host}: the loss is {error} in epoch {at.epoch + 1}, "
                    f"step {at.steps + 1}: lower --lr (it is {self.optimizer.param_groups[0]['lr']:g}) "
                    "or look at the data"
                ) from None
            # DistributedSampler pads at the end: beyond a rank's own samples, the rest of a batch repeats others.
            real = min(len(labels), own_left - counted)
            tally.add(loss, logits, labels, real)
            counted += real
        return size, counted

    def _batches(self, at: Position) -> DataLoader:
        if at.consumed:
            return rest_of_epoch(self.train, at.epoch, at.consumed)
        if hasattr(self.train.sampler, "set_epoch"):
            # Without it every epoch would have the order of the first.
            self.train.sampler.set_epoch(at.epoch)
        return self.train

    def _on_device(self, batch: Tensor) -> Tensor:
        return batch.to(self.me.device, non_blocking=True)

    def _sum(self, value: float) -> float:
        return self.collectives.all_reduce(torch.tensor(value, dtype=torch.float64, device=self.me.device)).item()

    def _bar(self, at: Position) -> tqdm:
        # Read here, since tqdm reads it at import, which in a warm rank is before the run sets it.
        quiet = not self.me.is_main or os.environ.get("TQDM_DISABLE", "0") not in ("", "0")
        return tqdm(
            desc=f"epoch {at.epoch + 1}/{self.args.epochs}",
            total=self.samples,
            initial=at.consumed,
            unit=f" {self.args.samples}",
            file=sys.stderr,
            leave=False,
            mininterval=0.1 if sys.stderr.isatty() else SECONDS_BETWEEN_BARS,
            disable=quiet,
        )

    def _save(self, path: Path, at: Position) -> None:
        resume.save(path, self.me, self.model, self.optimizer, self.train, at, self.collectives, self.keep)

    def _report_setup(self) -> None:
        me, args = self.me, self.args
        ranks, threads, peak = shares(self.train), torch.get_num_threads(), self.rate.peaks[0]
        samples = ranks * args.batch_size * args.accumulate
        report.log(
            me,
            "setup",
            world_size=me.world_size,
            device=str(me.device),
            backend=me.backend,
            threads=threads,
            model=args.model,
            parameters=sum(parameter.numel() for parameter in self.model.parameters()),
            batch_size=args.batch_size,
            accumulate=args.accumulate,
            samples_per_update=samples,
            own_samples=own_samples(self.train),
            base_lr=args.lr,
            lr=peak,
            warmup_epochs=args.warmup_epochs,
        )
        parts = [f"{ranks} rank{'s' if ranks > 1 else ''} x {args.batch_size}"]
        if ranks != me.world_size:
            # Stages of a pipeline share a batch.
            parts = [f"{me.world_size} ranks on {ranks} x {args.batch_size}"]
        if args.accumulate > 1:
            parts.append(f"{args.accumulate} batches")
        rate = f"learning rate {peak:g}"
        if peak > args.lr and args.warmup_epochs:
            rate = f"learning rate {args.lr:g}, rising to {peak:g} over {args.warmup_epochs:g} epochs"
        me.print(
            f"{' x '.join(parts)} = {samples} samples per update; {threads} thread{'s' if threads > 1 else ''} per rank"
        )
        me.print(rate)

    def _report_end(self, epochs: list[dict], at: Position) -> None:
        seconds = sum(epoch["seconds"] for epoch in epochs)
        weighted = sum(epoch["seconds"] * epoch["images_per_second"] for epoch in epochs)
        report.log(
            self.me,
            "end",
            epochs=at.epoch,
            steps=at.steps,
            images=sum(epoch["images"] for epoch in epochs),
            seconds=seconds,
            images_per_second=weighted / seconds if seconds else None,
            accuracy=epochs[-1]["val_accuracy"] if epochs else None,
            checkpoint=self.checkpoint,
        )
