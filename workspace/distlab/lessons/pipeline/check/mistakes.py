"""Mistakes that people make in the exercise pipeline, and what its check says of each."""

from distlab.checks.mistake import Mistake

BEST = "    best = min(itertools.combinations(range(1, len(costs)), stages - 1), key=slowest)\n"
ANSWER = "    return [end - first for first, end in ends(best)]\n"
PART = "model[first : first + layers[me.rank]]"
STAGE = "PipelineStage(part, me.rank, me.world_size, me.message_device)"
SCHEDULE = "Schedule1F1B(stage, n_microbatches=16, loss_fn=cross_entropy)"
IMPORT = "from torch.distributed.pipelining import PipelineStage, Schedule1F1B\n"
TARGETS = '        targets = {"target": y, "losses": losses} if stage.is_last else {}\n'
STEP = "        schedule.step(*pixels, **targets)\n"
BROADCAST = "        dist.broadcast(mean, src=me.world_size - 1)\n"


def schedule(name: str, microbatches: int) -> list[tuple[str, str]]:
    """Another schedule in place of 1F1B."""
    return [
        (IMPORT, IMPORT.replace("Schedule1F1B", name)),
        (SCHEDULE, f"{name}(stage, n_microbatches={microbatches}, loss_fn=cross_entropy)"),
    ]


MISTAKES = (
    Mistake(
        "batch not divisible",
        [("n_microbatches=16", "n_microbatches=12")],
        "schedule",
        "a batch of 32 is not divisible by 12 microbatches: some would have 3 samples and some 2, "
        "but stages make room for one size. It can be 1, 2, 4, 8, 16 or 32",
        may_be_open=("optimizer",),
    ),
    Mistake(
        "targets to the first stage",
        [(TARGETS, '        targets = {"target": y, "losses": losses} if stage.is_first else {}\n')],
        "step",
        "rank 0, which has stage 0 of 4, gives targets to step: the loss is on the last stage, which rank 3 has",
        live=True,
        may_be_open=("schedule", "optimizer"),
    ),
    Mistake(
        "loss function on the last stage only",
        [("loss_fn=cross_entropy)", "loss_fn=cross_entropy if stage.is_last else None)")],
        "schedule",
        "the schedule of ranks 0, 1 and 2 has no loss_fn, so it does forwards only: give it on every rank",
        may_be_open=("optimizer",),
    ),
    Mistake(
        "loss of the wrong rank",
        [(BROADCAST, "        dist.broadcast(mean, src=0)\n")],
        "loss",
        "rank 3 returned a loss of 0.000 for batch 0, but the mean is *: "
        "it is the mean over all microbatches, which only rank 3 knows, with the last stage",
    ),
    Mistake(
        "stage on the first GPU",
        [(STAGE, STAGE.replace("me.message_device", 'torch.device("cuda:0")'))],
        "stages",
        "rank 0 puts stage 0 on cuda:0, while its messages come from cpu: take the device from me.message_device",
    ),
    Mistake(
        "stage on the CPU",
        [(STAGE, STAGE.replace("me.message_device", 'torch.device("cpu")'))],
        "stages",
        "rank 0 puts stage 0 on cpu, even where its device is not cpu: take the device from me.message_device",
    ),
    Mistake(
        "layers left on the CPU",
        [(f"{PART}.to(me.message_device)", PART)],
        "stages",
        "rank 0 makes stage 0 for its own device, but leaves the layers on cpu: move them to me.message_device",
    ),
    Mistake(
        "stage counted within the host",
        [
            (STAGE, STAGE.replace("me.rank", "me.local_rank")),
            (TARGETS, TARGETS.replace("stage.is_last", "me.rank == me.world_size - 1")),
        ],
        "stages",
        "ranks 0 and 2 both made stage 0, and nobody made stages 2 and 3: the index of a stage is its place",
        live=True,
    ),
    Mistake(
        "stages backwards",
        [(STAGE, STAGE.replace("me.rank", "me.world_size - 1 - me.rank"))],
        "stages",
        "rank 0 made stage 3, but Schedule1F1B looks for it on rank 3",
    ),
    Mistake(
        "equally many layers",
        [
            (BEST, "    each = len(costs) // stages\n"),
            (ANSWER, "    return [each] * (stages - 1) + [len(costs) - each * (stages - 1)]\n"),
        ],
        "split",
        "with costs [2, 2, 2, 9, 2, 2, 2, 2] and 4 stages split gave [2, 2, 2, 2]: "
        "its slowest stage, stage 1, costs 11, but 9 is possible",
        live=True,
    ),
    Mistake(
        "last layer lost",
        [("(0, *cuts, len(costs))", "(0, *cuts, len(costs) - (len(costs) > 6))")],
        "split",
        "with costs [1, 1, 1, 1, 1, 1, 1, 1] and 4 stages split gave [*]: "
        "that is 7 layers, but there are 8, so 1 layer would be lost",
    ),
    Mistake(
        "split not asked",
        [("layers = split(costs, me.world_size)", "layers = [len(costs) // me.world_size] * me.world_size")],
        "layers",
        "the 4 stages cost [1392, 1296, 432, 348]: its slowest stage, stage 0, costs 1392, but 1152 is possible",
    ),
    Mistake(
        "a layer taken twice",
        [(PART, "model[max(0, first - 1) : first + layers[me.rank]]")],
        "layers",
        "layer 0 is on ranks 0 and 1, and would be taken more than once",
    ),
    Mistake(
        "a layer lost",
        [(PART, "model[first + (me.rank == 2) : first + layers[me.rank]]")],
        "layers",
        "layer 3 of 12 is on no rank: the layers of a stage begin where those of the stage before end",
        live=True,
    ),
    Mistake(
        "the whole model in each stage",
        [(PART, "model")],
        "layers",
        "every rank has all 12 layers in its stage: keep those of one stage",
    ),
    Mistake(
        "batch edited in place",
        [("[x / 255]", "[x.div_(255)]")],
        "step",
        "rank 0 changed x of batch 0 in place: its largest value was 255 and is *",
    ),
    Mistake(
        "pixels as they are",
        [("[x / 255]", "[x]")],
        "step",
        "rank 0 gives pixels up to 255 to step: the model takes them from 0 to 1, x / 255",
        may_be_open=("schedule", "optimizer"),
    ),
    Mistake(
        "a middle stage is given the input",
        [("if stage.is_first else []", "if not stage.is_last else []")],
        "step",
        "rank 1, which has stage 1 of 4, gives an input to step: it takes what stage 0 sends",
        may_be_open=("schedule", "optimizer"),
    ),
    Mistake(
        "gradients not divided",
        [("loss_fn=cross_entropy)", "loss_fn=cross_entropy, scale_grads=False)")],
        "trains",
        "the first update of rank 0 is 16 times as long as that of one process: "
        "gradients of 16 microbatches were added up",
        live=True,
    ),
    Mistake(
        "loss summed over samples",
        [("loss_fn=cross_entropy)", 'loss_fn=lambda out, y: cross_entropy(out, y, reduction="sum"))')],
        "trains",
        "the first update of rank 0 is 2 times as long as that of one process: "
        "the loss of a microbatch is the sum over its 2 samples, not their mean",
    ),
    Mistake(
        "optimizer over the whole model",
        [("SGD(part.parameters()", "SGD(model.parameters()")],
        "optimizer",
        "the optimizer of rank 0 holds 24 parameters, but only 2 of them are in its stage: "
        "the other 22 have no gradient here",
        live=True,
    ),
    Mistake(
        "gradients pile up",
        [("        optimizer.zero_grad()\n", "")],
        "trains",
        "the weights of rank 0 are those of a process that adds each step's gradients to those before: "
        "optimizer.zero_grad() is missing",
    ),
    Mistake(
        "never updated",
        [("        optimizer.step()\n", "")],
        "trains",
        "the weights of rank 0 never changed: optimizer.step() follows schedule.step",
    ),
    Mistake(
        "too few microbatches",
        [("n_microbatches=16", "n_microbatches=8")],
        "schedule",
        "Schedule1F1B with 8 microbatches leaves ranks idle for 27% of a step, and at most 20% is asked for",
        live=True,
    ),
    Mistake(
        "all activations kept",
        schedule("ScheduleGPipe", 16),
        "schedule",
        "ScheduleGPipe with 16 microbatches lets rank 0 keep activations of 32 samples at once, "
        "16 microbatches of 2, and at most 8 is asked for",
    ),
    Mistake(
        "ranks with different numbers of microbatches",
        [("n_microbatches=16", "n_microbatches=16 * (1 + me.rank % 2)")],
        "schedule",
        "rank 0 cuts the batch into 16 microbatches, but rank 1 cuts the batch into 32 microbatches",
        may_be_open=("optimizer",),
    ),
    Mistake(
        "loss not handed on",
        [(BROADCAST, "")],
        "loss",
        "rank 0 returned a loss of 0.000 for batch 0, but the mean is *: the loss is on the last stage, "
        "so rank 3 has to hand it to the others, with dist.broadcast",
        live=True,
    ),
    Mistake(
        "losses added up",
        [("torch.stack(losses).detach().mean()", "torch.stack(losses).detach().sum()")],
        "loss",
        "rank 3 returned a loss of * for batch 0, but the mean is *: that is the sum over 16 microbatches",
    ),
    Mistake(
        "only the first rank takes a step",
        [(STEP, "        if stage.is_first:\n            schedule.step(*pixels)\n")],
        "runs",
        "mine.py, line {line}*rank 3 on node2: RuntimeError: stack expects a non-empty TensorList; in a "
        "pipeline only the last stage has losses; rank 0 waited in schedule.step, which ranks 1, 2 and 3 "
        "never called: every rank calls it in every",
        at="torch.stack(losses)",
        live=True,
    ),
    Mistake(
        "losses of the first stage",
        [
            (
                "torch.stack(losses).detach().mean() if stage.is_last",
                "torch.stack(losses).detach().mean() if me.rank < 1",
            )
        ],
        "runs",
        "mine.py, line {line}*rank 0 on node1: RuntimeError: stack expects a non-empty TensorList; in a "
        "pipeline only the last stage",
        at="torch.stack(losses)",
    ),
    Mistake(
        "a GPU that is not there",
        [(f"{PART}.to(me.message_device)", f'{PART}.to("cuda")')],
        "runs",
        "mine.py, line {line}*every rank: RuntimeError: Found no NVIDIA driver*; this check runs on CPUs; "
        "the rank knows its device",
        at='to("cuda")',
    ),
    Mistake(
        "fewer microbatches than stages",
        [("n_microbatches=16", "n_microbatches=2")],
        "runs",
        "mine.py, line {line}*every rank: ValueError: Number of microbatches (2) must be greater than or "
        "equal to the number of stages (4)",
        at="Schedule1F1B(stage",
    ),
    Mistake(
        "a stage edits what it was sent",
        [(STEP, f"        part.register_forward_pre_hook(lambda _, sent: (sent[0].mul_(1),))\n{STEP}")],
        "runs",
        "mine.py, line {line}*RuntimeError: a leaf Variable that requires grad is being used in an in-place "
        "operation; what a stage is sent is not its own to change",
        at="sent[0].mul_(1)",
        live=True,
    ),
    Mistake(
        "no stage yet",
        [(f"\n    stage = {STAGE}\n", ""), (f"    schedule = {SCHEDULE}\n", "    raise NotImplementedError\n")],
        "runs",
        "mine.py, line {line}*raise NotImplementedError is still to be replaced by your code; no rank has "
        "called schedule.step yet, and no stage can train without it: go on with TODO 3, PipelineStage",
        at="raise NotImplementedError",
    ),
    Mistake(
        "function renamed",
        [("def train(", "def learn("), ("losses = train(", "losses = learn(")],
        "runs",
        "mine.py has no function train(me, model, costs, batches, lr)",
    ),
)
