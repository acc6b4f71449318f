"""A rank of elastic training: commits every few steps, and goes back to the last commit when another rank is lost.

horovodrun starts it, and the experiment `elastic` starts horovodrun. It trains a small model for one epoch
on the CPU and writes what happens to it, line by line, to a file of its own, since its rank may change.
"""

import argparse
import hashlib
import json
import os
import signal
import time
from pathlib import Path

import horovod.torch as hvd
import torch
from torch import nn
from torch.utils.data import BatchSampler

from distlab.hosts.interface import leading_to
from distlab.parent import end_with_parent

FEATURES, CLASSES, SAMPLES = 16, 4, 2048
# Samples of a rank in a step.
BATCH = 32
# For one rank.
LEARNING_RATE = 0.02


class Diary:
    """What this process saw, in order: one JSON line each, whole even when it is killed in the next moment."""

    def __init__(self, folder: Path, start: float) -> None:
        self.start, self.first_rank, self.host = start, hvd.rank(), os.environ["HOROVOD_HOSTNAME"]
        self.life = 0
        self.path = folder / f"{self.host}-{os.getpid()}.jsonl"

    def now(self) -> float:
        """Seconds since the experiment started horovodrun."""
        return time.time() - self.start

    def write(self, what: str, step: int, **more: object) -> None:
        """Add one line."""
        who = {"hvd_rank": hvd.rank(), "first_rank": self.first_rank, "hvd_host": self.host}
        line = {"what": what, **who, "world_size": hvd.size(), "life": self.life, "step": step, "seconds": self.now()}
        with self.path.open("a") as file:
            file.write(json.dumps(line | more) + "\n")


class State(hvd.elastic.TorchState):
    """Horovod's state, which writes down when a rank is lost and to which step it goes back."""

    def __init__(self, diary: Diary, **kept: object) -> None:
        super().__init__(**kept)
        self.diary = diary

    def restore(self) -> None:
        """Go back to the last commit: Horovod calls this when a collective has failed."""
        self.diary.write("lost", self.step)
        super().restore()
        self.diary.write("restored", self.step)


def samples() -> tuple[torch.Tensor, torch.Tensor]:
    """Random points, and the classes that a fixed linear map gives them; the same in every process."""
    source = torch.Generator().manual_seed(4)
    points = torch.randn(SAMPLES, FEATURES, generator=source)
    return points, (points @ torch.randn(FEATURES, CLASSES, generator=source)).argmax(dim=1)


def meet_the_others() -> None:
    """Use this host's own interface: horovodrun gives all hosts the name that it has on the first."""
    interface = leading_to([os.environ["HOROVOD_GLOO_RENDEZVOUS_ADDR"]])
    if interface and interface != "lo":
        os.environ["HOROVOD_GLOO_IFACE"] = interface


def digest(model: nn.Module) -> str:
    """A short name of the weights: equal for equal bits."""
    held = b"".join(weight.detach().numpy().tobytes() for weight in model.parameters())
    return hashlib.sha256(held).hexdigest()[:16]


@hvd.elastic.run
def train(state: State, points: torch.Tensor, classes: torch.Tensor, args: argparse.Namespace) -> None:
    """The rest of the epoch, from where `state` stands; Horovod calls it anew after each loss."""
    for indices in BatchSampler(state.sampler, BATCH, drop_last=False):
        began, step = state.diary.now(), state.step + 1
        time.sleep(args.pause)
        state.optimizer.zero_grad()
        loss = nn.functional.cross_entropy(state.model(points[indices]), classes[indices])
        if step == args.kill_step and hvd.rank() == args.kill_rank and not state.diary.life:
            state.diary.write("killed", step, began=began)
            os.kill(os.getpid(), signal.SIGKILL)
        loss.backward()
        state.optimizer.step()
        state.step = step
        state.sampler.record_batch(step, len(indices))
        state.diary.write("step", step, began=began, loss=loss.item(), samples=indices)
        if step % args.commit_every == 0:
            # Written first: Horovod saves, and then asks all ranks whether the hosts have changed.
            state.diary.write("commit", step)
            state.commit()


def main() -> None:
    """Run the experiment on this rank. Reports nothing."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--folder", type=Path, required=True, help="where to write what happens")
    parser.add_argument("--start", type=float, required=True, help="when horovodrun was started (Unix, s)")
    parser.add_argument("--deadline", type=int, default=60, help="seconds after which this process ends itself")
    parser.add_argument("--commit-every", type=int, default=4, help="steps")
    parser.add_argument("--kill-rank", type=int, default=2)
    parser.add_argument("--kill-step", type=int, default=11, help="the step in which that rank kills itself")
    parser.add_argument("--pause", type=float, default=0.1, help="seconds by which each step is made longer")
    args = parser.parse_args()
    # On another host nobody else would end a rank whose launcher is gone.
    signal.alarm(args.deadline)
    end_with_parent()
    meet_the_others()
    hvd.init()
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(FEATURES, 32), nn.Tanh(), nn.Linear(32, CLASSES))
    optimizer = torch.optim.SGD(model.parameters(), lr=LEARNING_RATE * hvd.size(), momentum=0.9)
    optimizer = hvd.DistributedOptimizer(optimizer, named_parameters=model.named_parameters())
    points, classes = samples()
    sampler = hvd.elastic.ElasticSampler(points)
    state = State(Diary(args.folder, args.start), model=model, optimizer=optimizer, sampler=sampler, step=0)
    state.diary.write("started", 0)

    def resized() -> None:
        """Horovod has joined those that are left: deal the samples anew, and scale the learning rate."""
        state.diary.life += 1
        state.sampler.reset()
        for group in state.optimizer.param_groups:
            group["lr"] = LEARNING_RATE * hvd.size()
        state.diary.write("resized", state.step)

    state.register_reset_callbacks([resized])
    train(state, points, classes, args)
    state.diary.write("ended", state.step, weights=digest(model))


if __name__ == "__main__":
    main()
