"""One rank does what MODE says, at `--at early` before it joins the others, else among them."""

import argparse
import os
import signal
import subprocess
import sys
import time

parser = argparse.ArgumentParser()
parser.add_argument("mode")
parser.add_argument("--who", type=int, nargs="+", default=[1])
parser.add_argument("--at", choices=["early", "group", "bare"], default="group")
parser.add_argument("--others", choices=["reduce", "sleep", "finish"], default="reduce")
parser.add_argument("--deaf", type=int, help="a rank that ignores signals and leaves a child that does, too")
parser.add_argument("--for", type=float, default=60.0, dest="seconds")
asked = parser.parse_args()
# As torchrun, horovodrun and mpirun call it; nothing of distlab is imported yet.
RANK = int(next(os.environ[name] for name in ("RANK", "HOROVOD_RANK", "OMPI_COMM_WORLD_RANK") if name in os.environ))


def misbehave() -> None:
    if asked.mode == "raise":
        weights = {"bias": 0}
        weights[f"weight of rank {RANK}"]
    elif asked.mode == "import":
        import no_such_module_anywhere  # noqa: F401
    elif asked.mode == "say":
        sys.exit("the learning rate is negative")
    elif asked.mode == "refused":
        raise ConnectionRefusedError("the data server says: Connection refused")
    elif asked.mode.startswith("exit"):
        sys.exit(int(asked.mode.removeprefix("exit")))
    elif asked.mode.startswith("vanish"):
        os._exit(int(asked.mode.removeprefix("vanish")))
    elif asked.mode.startswith("SIG"):
        os.kill(os.getpid(), getattr(signal, asked.mode))
    elif asked.mode == "hang":
        hang_here(asked.seconds)
    else:
        raise SystemExit(f"unknown mode {asked.mode}")


def be_deaf() -> None:
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    ignore = "import signal,time; [signal.signal(s, signal.SIG_IGN) for s in (1, 2, 15)]; time.sleep(600)"
    subprocess.Popen([sys.executable, "-S", "-c", ignore], start_new_session=True)


def hang_here(seconds: float) -> None:
    time.sleep(seconds)


mine = RANK in asked.who
if RANK == asked.deaf:
    be_deaf()
print("started", time.time(), flush=True)
if mine and asked.at == "early":
    misbehave()
if asked.at == "bare":
    if mine:
        misbehave()
    if asked.others == "sleep":
        time.sleep(asked.seconds)
    sys.exit(0)

import torch  # noqa: E402
import torch.distributed as dist  # noqa: E402
from distlab import process  # noqa: E402

with process.group() as me:
    dist.barrier()
    print("joined", time.time(), flush=True)
    if mine:
        misbehave()
    elif asked.others == "sleep":
        time.sleep(asked.seconds)
    elif asked.others == "reduce":
        for _ in range(1000):
            dist.all_reduce(torch.ones(4))
            time.sleep(0.001)
