"""Mistakes that people make in the exercise ddp, and what its check says of each."""

from distlab.checks.mistake import Mistake

SAMPLER = "DistributedSampler(dataset)"
LOOP = "    for epoch in range(epochs):\n        sampler.set_epoch(epoch)\n"
SAVE = "    if rank == 0:\n        torch.save(model.state_dict(), checkpoint)\n"
REDUCE = "    dist.all_reduce(sums)\n"
LEAVE = "    dist.destroy_process_group()\n"

MISTAKES = (
    Mistake(
        "sampler missing",
        [("sampler=sampler)", "shuffle=True)")],
        "sampler",
        "rank 0 and rank 1 both saw all 64 samples in epoch 0: the loader has no DistributedSampler",
        live=True,
    ),
    Mistake(
        "set_epoch missing",
        [("        sampler.set_epoch(epoch)\n", "")],
        "epochs",
        "rank 0 saw the same 16 samples in the same order in epochs 0 and 1: sampler.set_epoch(epoch) is missing",
        live=True,
    ),
    Mistake(
        "model not wrapped",
        [("DistributedDataParallel(model)", "model")],
        "wrap",
        "after 9 steps the weights of rank 0 and rank 1 differ by up to *: "
        "the model is not wrapped in DistributedDataParallel",
        live=True,
    ),
    Mistake(
        "device from rank",
        [('torch.device("cuda", local_rank)', 'torch.device("cuda", rank)')],
        "device",
        "on a host with 2 GPUs rank 2, whose local rank is 0, chose cuda:2, but cuda:0 is its own: "
        "a host counts its GPUs from 0, so choose by local_rank, not by rank",
        live=True,
    ),
    Mistake(
        "every rank saves",
        [(SAVE, SAVE.replace("    if rank == 0:\n    ", ""))],
        "saves",
        "every rank wrote the checkpoint, 4 at the same time: save only if rank == 0",
        live=True,
    ),
    Mistake(
        "loss not reduced",
        [(REDUCE, "")],
        "loss",
        "rank 0 returned a loss of *, the mean over its own samples, but over all ranks the mean is *: "
        "add up loss and count with dist.all_reduce",
        live=True,
    ),
    Mistake(
        "group not destroyed",
        [(LEAVE, "")],
        "leaves",
        "ranks 0, 1, 2 and 3 left the process group open: it is not destroyed at the end of train",
        live=True,
    ),
    # The same seven in other clothes, and what people do on the way.
    Mistake(
        "set_epoch before the loop",
        [(LOOP, "    sampler.set_epoch(0)\n    for _ in range(epochs):\n")],
        "epochs",
        "in the same order in epochs 0 and 1: sampler.set_epoch(epoch) is missing at the start of each epoch",
    ),
    Mistake(
        "sampler by local rank",
        [(SAMPLER, "DistributedSampler(dataset, rank=local_rank)")],
        "sampler",
        "rank 0 and rank 2 saw the same 16 samples in epoch 0: DistributedSampler needs the global rank",
    ),
    Mistake(
        "bare model trained",
        [("wrapped(x)", "model(x)")],
        "wrap",
        "differ by up to *: the model was wrapped, but batches do not go through the wrapped one",
    ),
    Mistake(
        "gradients pile up",
        [("            optimizer.zero_grad()\n", "")],
        "wrap",
        "after 9 steps the weights differ by up to * from those of one process that took the same batches",
    ),
    Mistake(
        "wrapper saved",
        [("model.state_dict()", "wrapped.state_dict()")],
        "saves",
        "every key in the checkpoint begins with module., so a plain model cannot load it",
    ),
    Mistake(
        "function renamed",
        [("def train(", "def training("), ("loss = train(", "loss = training(")],
        "runs",
        "mine.py has no function train(dataset, model, epochs, batch_size, lr, checkpoint)",
        may_be_open=("device",),
    ),
    Mistake(
        "argument renamed",
        [("batch_size: int, lr: float", "batch: int, lr: float"), ("(dataset, batch_size,", "(dataset, batch,")],
        "runs",
        "mine.py has train(dataset, model, epochs, batch, lr, checkpoint), "
        "which cannot be called as train(dataset, model, epochs, batch_size, lr, checkpoint)",
        may_be_open=("device",),
    ),
    Mistake(
        "group not joined",
        [("    dist.init_process_group()\n", "")],
        "runs",
        "mine.py, line {line}*ValueError: Default process group has not been initialized, *dist.init_process_group()",
        at="sampler = DistributedSampler",
        live=True,
    ),
    Mistake(
        "one rank raises",
        [(REDUCE, f"    if rank == 2:\n        count = count / 0\n{REDUCE}")],
        "runs",
        "mine.py, line {line}*rank 2 on node2: ZeroDivisionError: division by zero",
        at="count = count / 0",
        live=True,
    ),
    Mistake(
        "still to write",
        [(REDUCE, "    raise NotImplementedError\n")],
        "runs",
        "mine.py, line {line}*raise NotImplementedError is still to be replaced by your code",
        at="raise NotImplementedError",
    ),
)
