"""Mistakes that people make in the exercise data_parallel, and what its check says of each."""

from distlab.checks.mistake import Mistake

SCATTER = "[piece.to(device) for piece, device in zip(batch.chunk(len(devices)), devices, strict=False)]"
REPLICATE = "    return [copy.deepcopy(model).to(device) for device in devices]\n"
THREADS = (
    "    for thread in threads:\n        thread.start()\n    for thread in threads:\n        thread.join()\n",
    "    for thread in threads:\n        thread.start()\n        thread.join()\n",
)
STORE = "            outputs[number] = replicas[number](pieces[number])\n"
ERRORS = "    if errors:\n        raise errors[0]\n"
GATHER = "torch.cat([output.to(device) for output in outputs])"
ADD = "                own.grad = gradient if own.grad is None else own.grad + gradient\n"
SKIP = "            if other.grad is not None:\n                gradient = other.grad.to(own.device)\n"
ZEROS = (
    "            if True:\n"
    "                gradient = torch.zeros_like(own) if other.grad is None else other.grad.to(own.device)\n"
)
LOAD = '        state = {name.removeprefix("module."): value for name, value in state.items()}\n'


def by_stride(step: str) -> str:
    """Code that gives a device each so many samples from its own number on."""
    return f"[batch[{step}] for number in range(len(devices))]"


MISTAKES = (
    # TODO 1
    Mistake(
        "last samples lost",
        [(SCATTER, by_stride("number * (len(batch) // 4) : (number + 1) * (len(batch) // 4)"))],
        "scatter",
        "of a batch of 10 samples on 4 devices no device got samples 8 and 9: 10 does not divide by 4, "
        "and the last piece has to take the rest",
        live=True,
    ),
    Mistake(
        "dealt like cards",
        [(SCATTER, by_stride("number::4"))],
        "scatter",
        "of a batch of 10 samples on 4 devices device 0 got samples 0, 4 and 8: pieces follow each other",
    ),
    Mistake(
        "empty pieces",
        [(SCATTER, by_stride("number * -(-len(batch) // 4) : (number + 1) * -(-len(batch) // 4)"))],
        "scatter",
        "of a batch of 2 samples on 4 devices device 2 got an empty piece: a small batch has fewer pieces than devices",
    ),
    Mistake(
        "samples twice",
        [(SCATTER, by_stride("max(0, number * 3 - 1) : (number + 1) * 3"))],
        "scatter",
        "of a batch of 10 samples on 4 devices more than one device got samples 2, 5 and 8",
    ),
    Mistake(
        "the first has most",
        [(SCATTER, "list(batch.split([len(batch) - 1, 1]))")],
        "scatter",
        "of a batch of 10 samples on 4 devices one device got 9 samples, but with fair shares none has more than 3",
    ),
    Mistake(
        "more pieces than devices",
        [(SCATTER, "list(batch.split(1))")],
        "scatter",
        "scatter made 10 pieces, more than there are devices",
    ),
    Mistake(
        "pieces stay where they are",
        [(SCATTER, "list(batch.chunk(len(devices)))")],
        "scatter",
        "for devices cpu and meta scatter gave pieces on cpu and cpu: move each piece to its device",
    ),
    # TODO 2
    Mistake(
        "no copies",
        [("copy.deepcopy(model).to(device)", "model.to(device)")],
        "replicate",
        "replicas 1, 2 and 3 are the model itself and no copy: model.to(device) moves the model and returns it",
        live=True,
    ),
    Mistake(
        "one copy for all",
        [(REPLICATE, "    return [copy.deepcopy(model)] * len(devices)\n")],
        "replicate",
        "replicas 0 and 1 are one and the same memory: make a copy for each device",
    ),
    Mistake(
        "stale weights",
        [
            (
                REPLICATE,
                "    if not hasattr(replicate, 'kept'):\n        replicate.kept = copy.deepcopy(model)\n"
                "    return [copy.deepcopy(replicate.kept).to(device) for device in devices]\n",
            )
        ],
        "replicate",
        "after the model has changed, a new replica 0 still has the weights of before: replicate in every step",
    ),
    Mistake(
        "new weights",
        [(REPLICATE, "    return [type(model)().to(device) for device in devices]\n")],
        "replicate",
        "the weights of replica 0 are not those of the model",
    ),
    Mistake(
        "copies stay where they are",
        [("copy.deepcopy(model).to(device)", "copy.deepcopy(model)")],
        "replicate",
        "for devices cpu and meta the replicas are on cpu and cpu: move each copy to its device",
    ),
    Mistake(
        "one replica missing",
        [("for device in devices]\n\n\ndef parallel", "for device in devices[1:]]\n\n\ndef parallel")],
        "replicate",
        "replicate made 3 of the 4 replicas",
    ),
    # TODO 3
    Mistake(
        "one replica does everything",
        [(STORE, STORE.replace("replicas[number]", "replicas[0]"))],
        "apply",
        "replica 0 was given pieces * but piece 0 is its own",
    ),
    Mistake(
        "all of the first piece",
        [(STORE, STORE.replace("pieces[number]", "pieces[0]"))],
        "apply",
        "replica 1 was given piece 0, but piece 1 is its own: replica i computes piece i, and nothing else",
    ),
    Mistake(
        "one after the other in threads",
        [THREADS],
        "apply",
        "the 4 replicas ran in threads, but one after the other: start all threads before you join the first",
        live=True,
    ),
    Mistake(
        "no threads",
        [("threading.Thread(target=work, args=[number])", "threading.Thread(target=work(number))")],
        "apply",
        "the 4 replicas ran in 1 thread, one after the other: start a threading.Thread for each",
    ),
    Mistake(
        "order of arrival",
        [
            ("    outputs: list = [None] * len(replicas)\n", "    outputs: list = []\n"),
            (STORE, STORE.replace("outputs[number] = ", "outputs.append(").replace("])\n", "]))\n")),
        ],
        "apply",
        "the outputs are those of replicas 3, 2, 1 and 0, in this order: that is who was ready first",
    ),
    Mistake(
        "errors swallowed",
        [(ERRORS, "")],
        "apply",
        "replica 1 raised a ValueError, and parallel_apply went on as if nothing had happened",
    ),
    # TODO 4
    Mistake(
        "order turned",
        [(GATHER, GATHER.replace("in outputs", "in outputs[::-1]"))],
        "gather",
        "the rows are of replicas 2, 1, 1, 1, 0, 0 and 0: keep the order of the replicas",
    ),
    Mistake(
        "last outputs lost",
        [(GATHER, GATHER.replace("in outputs", "in outputs[:-1]"))],
        "gather",
        "of three replicas with 3, 3 and 1 outputs the gathered tensor lacks those of replica 2",
    ),
    Mistake(
        "graph cut",
        [(GATHER, GATHER.replace("output.to(device)", "output.detach().to(device)"))],
        "gather",
        "no gradient came back to replica 0: gather must not detach the outputs",
        live=True,
    ),
    Mistake(
        "stacked",
        [(GATHER, GATHER.replace("cat", "stack"))],
        "gather",
        "gather raised RuntimeError: stack expects each tensor to be equal size*(line *, return torch.stack(",
    ),
    Mistake(
        "gathered nowhere",
        [(GATHER, "torch.cat(outputs)")],
        "gather",
        "asked for the device meta, gather left its result on cpu",
    ),
    # TODO 5
    Mistake(
        "gradients stay with the copies",
        [(ADD, "                pass\n")],
        "gradients",
        "three replicas have gradients of 1, 10 and 100, and the model got none",
        live=True,
    ),
    Mistake(
        "mean of gradients",
        [("other.grad.to(own.device)", "other.grad.to(own.device) / len(replicas)")],
        "gradients",
        "and the model got 37, the mean: the loss was a mean over the whole batch already, so add up",
    ),
    Mistake(
        "last gradient wins",
        [(ADD, "                own.grad = gradient.clone()\n")],
        "gradients",
        "and the model got 100, those of the last replica alone: add each to what is there",
    ),
    Mistake(
        "the first replica's memory",
        [(ADD, "                own.grad = gradient if own.grad is None else own.grad.add_(gradient)\n")],
        "gradients",
        "add to what is there, as backward does, and leave the replicas' own as they are",
    ),
    Mistake(
        "frozen weight",
        [(SKIP, ZEROS)],
        "gradients",
        "a weight that is frozen got a gradient: where a replica has None, add nothing",
    ),
    # TODO 6 and 7
    Mistake(
        "wrapper saved",
        [("wrapped.module.state_dict()", "wrapped.state_dict()")],
        "saves",
        "a checkpoint would hold module.scale: every name begins with module., and a plain model cannot load it",
        live=True,
    ),
    Mistake(
        "weights without buffers",
        [("wrapped.module.state_dict()", "dict(wrapped.module.named_parameters())")],
        "saves",
        "a checkpoint would lack shift, which a plain model wants",
    ),
    Mistake(
        "prefix kept",
        [(LOAD, "        pass\n")],
        "loads",
        "weights saved with nn.DataParallel around it do not load: load raised RuntimeError",
        live=True,
    ),
    Mistake(
        "prefix cut from all",
        [
            ('    if all(name.startswith("module.") for name in state):\n', "    if True:\n"),
            ('name.removeprefix("module.")', "name[7:]"),
        ],
        "loads",
        "weights saved from a plain model do not load",
    ),
    Mistake(
        "every module. taken",
        [('name.removeprefix("module.")', 'name.replace("module.", "")')],
        "loads",
        "weights of a network with a part called module do not load",
    ),
    Mistake(
        "not strict",
        [(LOAD, "        pass\n"), ("model.load_state_dict(state)", "model.load_state_dict(state, strict=False)")],
        "loads",
        "were taken without an error, and the model still has others",
    ),
    # The given part.
    Mistake(
        "update left out",
        [("    optimizer.step()\n    return", "    return")],
        "trains",
        "after 4 steps the weights differ by up to * from those of one device with the same batches",
    ),
)
