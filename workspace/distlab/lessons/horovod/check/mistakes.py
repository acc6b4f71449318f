"""Mistakes that people make in the exercise horovod_ddp, and what its check says of each."""

from distlab.checks.mistake import Mistake

INIT = "    hvd.init()\n    rank, local_rank = hvd.rank(), hvd.local_rank()\n"
SAMPLER = "DistributedSampler(dataset, hvd.size(), rank)"
SCALE = "    if scale_lr:\n        lr = lr * hvd.size()\n"
WRAP = "    optimizer = hvd.DistributedOptimizer(optimizer, model.named_parameters())\n"
PARAMETERS = "    hvd.broadcast_parameters(model.state_dict(), root_rank=0)\n"
STATE = "    hvd.broadcast_optimizer_state(optimizer, root_rank=0)\n"
REDUCE = 'hvd.allreduce(sums, op=hvd.Sum, name="sums").tolist()'
SAVE = "    if rank == 0:\n        torch.save(model.state_dict(), checkpoint)\n"
STEP = "            optimizer.step()\n"

MISTAKES = (
    Mistake(
        "not initialized",
        [(INIT, INIT.replace("    hvd.init()\n", ""))],
        "runs",
        "let it find the other ranks first",
        live=True,
    ),
    Mistake(
        "device from rank",
        [('torch.device("cuda", local_rank)', 'torch.device("cuda", rank)')],
        "device",
        "rank 2, whose local rank is 0, chose cuda:2, but cuda:0 is its own: *choose by local_rank, not by rank",
        live=True,
    ),
    Mistake(
        "device by global rank in train",
        [("device = device_for(rank, local_rank)", "device = device_for(rank, rank)")],
        "device",
        "train asked rank 2 for the device of local rank 2, but its local rank is 0",
    ),
    Mistake(
        "no sharding",
        [(SAMPLER, "DistributedSampler(dataset, 1, 0)")],
        "sampler",
        "rank 0 and rank 1 both saw all 64 samples in epoch 0",
        live=True,
    ),
    Mistake(
        "sampler by local rank",
        [(SAMPLER, "DistributedSampler(dataset, hvd.size(), local_rank)")],
        "sampler",
        "saw the same 16 samples in epoch 0: DistributedSampler needs hvd.size() and the global rank",
    ),
    Mistake(
        "set_epoch missing",
        [("        sampler.set_epoch(epoch)\n", "")],
        "epochs",
        "sampler.set_epoch(epoch) is missing",
        live=True,
    ),
    Mistake(
        "rate not scaled",
        [(SCALE, "")],
        "rate",
        "with scale_lr rank 0 trained with a learning rate of 0.02, but 4 ranks times 0.02 is 0.08",
        live=True,
    ),
    Mistake(
        "rate always scaled",
        [(SCALE, "    lr = lr * hvd.size()\n")],
        "rate",
        "without scale_lr rank 0 trained with a learning rate of 0.08, but 0.02 was given",
    ),
    Mistake(
        "not wrapped",
        [(WRAP, "")],
        "wraps",
        "at the first step the gradients of rank 0 and rank 1 differ by up to *: the optimizer is not wrapped",
        live=True,
    ),
    Mistake(
        "parameters not broadcast",
        [(PARAMETERS, "")],
        "starts",
        "rank 1 began with other weights than rank 0 brought: nobody called hvd.broadcast_parameters",
        live=True,
    ),
    Mistake(
        "optimizer state not broadcast",
        [(STATE, "")],
        "starts",
        "rank 1 began without the optimizer state of rank 0: nobody called hvd.broadcast_optimizer_state",
    ),
    Mistake(
        "wrapped last",
        [(WRAP, ""), (STATE, STATE + WRAP)],
        "starts",
        "the optimizer of rank 0 no longer had the state that rank 0 was given: *wrap first, then load, then broadcast",
    ),
    Mistake(
        "step called twice",
        [(STEP, STEP * 2)],
        "trains",
        "rank 0 made 18 steps for 9 batches: call optimizer.step() once",
    ),
    Mistake("gradients pile up", [("            optimizer.zero_grad()\n", "")], "trains", "those of one process"),
    Mistake(
        "metrics not averaged",
        [(REDUCE, "sums.tolist()")],
        "loss",
        "the mean over its own samples, but over all ranks the mean is *: add up loss and count with hvd.allreduce",
        live=True,
    ),
    Mistake(
        "every rank saves",
        [(SAVE, SAVE.replace("    if rank == 0:\n    ", ""))],
        "saves",
        "every rank wrote the checkpoint, 4 at the same time: save only if rank == 0",
        live=True,
    ),
)
