"""What makes the exercise data_parallel right, in the order in which one would mend it."""

import math

from distlab.checks.engine import Observed, Requirements
from distlab.checks.result import listed, plural

# Sums of float32 in another order; a real mistake is a hundred times larger.
CLOSE = 1e-5

REQUIREMENTS = Requirements()


def raised(function: str, record: dict) -> str:
    """What a function raised, and where."""
    where = f" (line {record['line']}, {record['code']})" if "line" in record else ""
    first = record["error"].strip().partition("\n")[0].rstrip(" .,:;!")
    return f"{function} raised {first}{where}"


@REQUIREMENTS.add()
def runs(observed: Observed) -> str | None:
    """the file can be read and has its functions"""
    return observed.trouble


@REQUIREMENTS.add(needs=("runs",))
def scatter(observed: Observed) -> str | None:
    """TODO 1: each sample goes to one device, in the order of the batch"""
    for record in observed.result.records("scatter"):
        if fault := _pieces_fault(record):
            return fault
    (places,) = observed.result.records("scatter devices")
    if "error" in places:
        return raised("scatter", places)
    if places["places"] != places["wanted"]:
        return (
            f"for devices {listed(places['wanted'])} scatter gave pieces on {listed(places['places'])}: "
            "move each piece to its device, piece.to(device)"
        )
    return None


def _pieces_fault(record: dict) -> str | None:
    size, devices, pieces = record["batch"], record["devices"], record["samples"]
    if "error" in record:
        return f"for a batch of {size} on {devices} devices {raised('scatter', record)}"
    if not record["typed"]:
        return "scatter returned something else than a list of tensors"
    who = f"of a batch of {size} samples on {devices} devices"
    if len(pieces) <= 1:
        return f"{who} scatter made a single piece, so that only one device has work: cut the batch"
    if len(pieces) > devices:
        return f"{who} scatter made {len(pieces)} pieces, more than there are devices"
    empty = [number for number, piece in enumerate(pieces) if not piece]
    if empty:
        return f"{who} device {empty[0]} got an empty piece: a small batch has fewer pieces than devices"
    dealt = [sample for piece in pieces for sample in piece]
    lost = sorted(set(range(size)) - set(dealt))
    if lost:
        return (
            f"{who} no device got {plural('sample', lost)}: {size} does not divide by {devices}, "
            "and the last piece has to take the rest"
            if size % devices
            else f"{who} no device got {plural('sample', lost)}"
        )
    twice = sorted({sample for sample in dealt if dealt.count(sample) > 1})
    if twice:
        return f"{who} more than one device got {plural('sample', twice)}"
    if dealt != list(range(size)):
        return (
            f"{who} device 0 got {plural('sample', pieces[0])}: pieces follow each other as in the batch, "
            "or the outputs come back in another order than the labels"
        )
    most, fair = max(map(len, pieces)), math.ceil(size / devices)
    if most > fair:
        return f"{who} one device got {most} samples, but with fair shares none has more than {fair}"
    return None


@REQUIREMENTS.add(needs=("runs",))
def replicate(observed: Observed) -> str | None:
    """TODO 2: each device has a copy of its own, with the weights of now"""
    (record,) = observed.result.records("replicate")
    if "error" in record:
        return raised("replicate", record)
    if not record["typed"]:
        return "replicate returned something else than a list of modules"
    devices, replicas = record["devices"], record["replicas"]
    if replicas != devices:
        return f"replicate made {replicas} of the {devices} replicas that were asked for"
    # The first device is the model's own, so the model may serve as its replica.
    itself = [number for number in record["model_itself"] if number]
    if itself:
        return (
            f"{plural('replica', itself)} {'are' if len(itself) > 1 else 'is'} the model itself and no copy: "
            "model.to(device) moves the model and returns it; copy it first"
        )
    if record["sharing"]:
        return "replicas {} and {} are one and the same memory: make a copy for each device".format(
            *record["sharing"][0]
        )
    if not all(record["right"]):
        return (
            f"the weights of replica {record['right'].index(False)} are not those of the model: "
            "a replica begins with the model's weights and buffers"
        )
    if not all(record["current"]):
        return (
            f"after the model has changed, a new replica {record['current'].index(False)} still has the weights of "
            "before: replicate in every step, and keep no copies"
        )
    if record["model_moved"]:
        return "replicate moved the model itself to another device: copy it first"
    if record["places"] != record["wanted"]:
        return (
            f"for devices {listed(record['wanted'])} the replicas are on {listed(record['places'])}: "
            "move each copy to its device"
        )
    return None


@REQUIREMENTS.add(needs=("runs",))
def apply(observed: Observed) -> str | None:
    """TODO 3: all replicas compute at the same time, and errors come out"""
    (record,) = observed.result.records("apply")
    if "error" in record:
        return raised("parallel_apply", record)
    for number, pieces in enumerate(record["calls"]):
        if pieces != [number]:
            return (
                f"replica {number} was given "
                + (f"{plural('piece', pieces)}, but piece {number} is its own" if pieces else "nothing to compute")
                + ": replica i computes piece i, and nothing else"
            )
    number, threads = len(record["calls"]), record["threads"]
    if threads != number:
        return (
            f"the {number} replicas ran in {threads} thread{'s' * (threads != 1)}, one after the other: "
            "start a threading.Thread for each"
        )
    if not record["met"]:
        return (
            f"the {number} replicas ran in threads, but one after the other: "
            "start all threads before you join the first"
        )
    if not record["typed"]:
        return (
            "parallel_apply returned something else than a list of the outputs: a thread returns nothing, "
            "so let each put its output into a list that all see"
        )
    if record["answers"] != list(range(number)):
        return (
            f"the outputs are those of {plural('replica', record['answers'])}, in this order: "
            "that is who was ready first; put the output of replica i in place i"
        )
    (error,) = observed.result.records("apply error")
    if not error["raised"]:
        return (
            "replica 1 raised a ValueError, and parallel_apply went on as if nothing had happened: "
            "an error ends its thread only, so keep it and raise it after join"
        )
    return None


@REQUIREMENTS.add(needs=("runs",))
def gather(observed: Observed) -> str | None:
    """TODO 4: all outputs together, in order, with a way back for gradients"""
    (record,) = observed.result.records("gather")
    if "error" in record:
        return raised("gather", record)
    if not record["typed"]:
        return "gather returned something else than a tensor"
    rows, wanted = record["rows"], record["wanted"]
    sizes = [wanted.count(replica) for replica in sorted(set(wanted))]
    missing = sorted(set(wanted) - set(rows))
    if missing:
        return (
            f"of three replicas with {listed(sizes)} outputs "
            f"the gathered tensor lacks those of {plural('replica', missing)}"
        )
    if rows != wanted:
        return (
            f"gathered from three replicas with {listed(sizes)} outputs, the rows are of replicas {listed(rows)}: "
            "keep the order of the replicas"
        )
    if record["shape"] != [len(wanted), 2]:
        return (
            f"outputs of {listed(sizes)} rows and 2 columns became a tensor of shape {tuple(record['shape'])}: "
            "join them along the first dimension"
        )
    if not all(record["reached"]):
        return (
            f"no gradient came back to replica {record['reached'].index(False)}: "
            "gather must not detach the outputs or copy their numbers"
        )
    if record["place"] != "meta":
        return f"asked for the device meta, gather left its result on {record['place']}: move the outputs to the device"
    return None


@REQUIREMENTS.add(needs=("runs",))
def gradients(observed: Observed) -> str | None:
    """TODO 5: the model has the sum of all gradients"""
    (record,) = observed.result.records("gradients")
    if "error" in record:
        return raised("add_gradients", record)
    once, twice = record["values"]
    right, right_twice = record["wanted"]
    have = "three replicas have gradients of 1, 10 and 100"
    if not once:
        return f"{have}, and the model got none: the optimizer would find nothing to do"
    said = f"{have}, and the model got {listed([f'{value:g}' for value in once])}"
    if once == [right / 3]:
        return f"{said}, the mean: the loss was a mean over the whole batch already, so add up"
    if once == [100.0]:
        return f"{said}, those of the last replica alone: add each to what is there"
    if once == [1.0]:
        return f"{said}, those of the first replica alone: add those of all"
    if once != [right]:
        return f"{said}, but their sum is {right:g}"
    if twice != [right_twice]:
        return (
            f"{said}; a second time it has {listed([f'{value:g}' for value in twice])}, "
            f"not {right_twice:g}: add to what is there, as backward does, and leave the replicas' own as they are"
        )
    if record["frozen"]:
        return "a weight that is frozen got a gradient: where a replica has None, add nothing"
    return None


@REQUIREMENTS.add(needs=("runs",))
def saves(observed: Observed) -> str | None:
    """TODO 6: what is saved has the names of a plain model"""
    (record,) = observed.result.records("saves")
    if "error" in record:
        return raised("state_to_save", record)
    keys, wanted = record["keys"], record["wanted"]
    if keys is None:
        return "state_to_save returned something else than a dict of weights"
    if keys == [f"module.{name}" for name in wanted]:
        return (
            f"a checkpoint would hold {keys[0]}: every name begins with module., and a plain model cannot load it; "
            "take the state_dict of the model inside the wrapper"
        )
    lacks = [name for name in wanted if name not in keys]
    if lacks:
        return f"a checkpoint would lack {lacks[0]}, which a plain model wants"
    if not record["same"]:
        return "a checkpoint would hold other names or numbers than the model has"
    return None


@REQUIREMENTS.add(needs=("runs",))
def loads(observed: Observed) -> str | None:
    """TODO 7: a plain model loads weights from with and without the wrapper"""
    for record in observed.result.records("loads"):
        case = record["case"]
        if "error" in record:
            return (
                f"weights {case} do not load: {raised('load', record)}; "
                "take one module. from the front of each name when all names have it"
            )
        if not record["same"]:
            return (
                f"weights {case} were taken without an error, and the model still has others: "
                "names that do not fit must not be passed over (strict=False)"
            )
    return None


@REQUIREMENTS.add(needs=("scatter", "replicate", "apply", "gather", "gradients"))
def trains(observed: Observed) -> str | None:
    """all steps together train as one device does"""
    (record,) = observed.result.records("trains")
    if "error" in record:
        return raised("train_step", record)
    apart, steps = record["apart"], record["steps"]
    by = "without limit" if apart is None else f"by up to {apart:.2g}"
    if apart is None or apart > CLOSE:
        return (
            f"after {steps} steps the weights differ {by} from those of one device with the same batches: "
            "train_step needs no change; look at what your functions leave behind between steps"
        )
    for step, (loss, right) in enumerate(zip(record["losses"], record["wanted"], strict=True), 1):
        if loss is None or not math.isclose(loss, right, abs_tol=CLOSE):
            return f"in step {step} train_step returned {loss}, but the loss of the whole batch is {right:.4f}"
    return None
