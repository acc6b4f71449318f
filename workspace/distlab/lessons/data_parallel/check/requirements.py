"""What makes the exercise data_parallel right, in the order in which one would mend it."""

import math

from distlab.checks.engine import Job, needs
from distlab.checks.result import listed, plural

# One process, whose replicas are threads.
HOSTS = "node1:1"
# Sums of float32 in another order; a real mistake is a hundred times larger.
CLOSE = 1e-5


def raised(function: str, record: dict) -> str:
    """What a function raised, and where."""
    where = f" (line {record['line']}, {record['code']})" if "line" in record else ""
    first = record["error"].strip().partition("\n")[0].rstrip(" .,:;!")
    return f"{function} raised {first}{where}"


def test_runs(job: Job) -> None:
    """the file can be read and has its functions"""
    assert job.trouble is None, job.trouble


@needs("runs")
def test_scatter(job: Job) -> None:
    """TODO 1: each sample goes to one device, in the order of the batch"""
    for record in job.result.records("scatter"):
        _judge_pieces(record)
    (places,) = job.result.records("scatter devices")
    assert "error" not in places, raised("scatter", places)
    assert places["places"] == places["wanted"], (
        f"for devices {listed(places['wanted'])} scatter gave pieces on {listed(places['places'])}: "
        "move each piece to its device, piece.to(device)"
    )


def _judge_pieces(record: dict) -> None:
    size, devices, pieces = record["batch"], record["devices"], record["samples"]
    assert "error" not in record, f"for a batch of {size} on {devices} devices {raised('scatter', record)}"
    assert record["typed"], "scatter returned something else than a list of tensors"
    who = f"of a batch of {size} samples on {devices} devices"
    assert len(pieces) > 1, f"{who} scatter made a single piece, so that only one device has work: cut the batch"
    assert len(pieces) <= devices, f"{who} scatter made {len(pieces)} pieces, more than there are devices"
    empty = [number for number, piece in enumerate(pieces) if not piece]
    assert not empty, f"{who} device {empty[0]} got an empty piece: a small batch has fewer pieces than devices"
    dealt = [sample for piece in pieces for sample in piece]
    lost = sorted(set(range(size)) - set(dealt))
    assert not lost, (
        f"{who} no device got {plural('sample', lost)}: {size} does not divide by {devices}, "
        "and the last piece has to take the rest"
        if size % devices
        else f"{who} no device got {plural('sample', lost)}"
    )
    twice = sorted({sample for sample in dealt if dealt.count(sample) > 1})
    assert not twice, f"{who} more than one device got {plural('sample', twice)}"
    assert dealt == list(range(size)), (
        f"{who} device 0 got {plural('sample', pieces[0])}: pieces follow each other as in the batch, "
        "or the outputs come back in another order than the labels"
    )
    most, fair = max(map(len, pieces)), math.ceil(size / devices)
    assert most <= fair, f"{who} one device got {most} samples, but with fair shares none has more than {fair}"


@needs("runs")
def test_replicate(job: Job) -> None:
    """TODO 2: each device has a copy of its own, with the weights of now"""
    (record,) = job.result.records("replicate")
    assert "error" not in record, raised("replicate", record)
    assert record["typed"], "replicate returned something else than a list of modules"
    devices, replicas = record["devices"], record["replicas"]
    assert replicas == devices, f"replicate made {replicas} of the {devices} replicas that were asked for"
    # The first device is the model's own, so the model may serve as its replica.
    itself = [number for number in record["model_itself"] if number]
    assert not itself, (
        f"{plural('replica', itself)} {'are' if len(itself) > 1 else 'is'} the model itself and no copy: "
        "model.to(device) moves the model and returns it; copy it first"
    )
    assert not record["sharing"], "replicas {} and {} are one and the same memory: make a copy for each device".format(
        *record["sharing"][0]
    )
    assert all(record["right"]), (
        f"the weights of replica {record['right'].index(False)} are not those of the model: "
        "a replica begins with the model's weights and buffers"
    )
    assert all(record["current"]), (
        f"after the model has changed, a new replica {record['current'].index(False)} still has the weights of before: "
        "replicate in every step, and keep no copies"
    )
    assert not record["model_moved"], "replicate moved the model itself to another device: copy it first"
    assert record["places"] == record["wanted"], (
        f"for devices {listed(record['wanted'])} the replicas are on {listed(record['places'])}: "
        "move each copy to its device"
    )


@needs("runs")
def test_apply(job: Job) -> None:
    """TODO 3: all replicas compute at the same time, and errors come out"""
    (record,) = job.result.records("apply")
    assert "error" not in record, raised("parallel_apply", record)
    for number, pieces in enumerate(record["calls"]):
        assert pieces == [number], (
            f"replica {number} was given "
            + (f"{plural('piece', pieces)}, but piece {number} is its own" if pieces else "nothing to compute")
            + ": replica i computes piece i, and nothing else"
        )
    number, threads = len(record["calls"]), record["threads"]
    assert threads == number, (
        f"the {number} replicas ran in {threads} thread{'s' * (threads != 1)}, one after the other: "
        "start a threading.Thread for each"
    )
    assert record["met"], (
        f"the {number} replicas ran in threads, but one after the other: start all threads before you join the first"
    )
    assert record["typed"], (
        "parallel_apply returned something else than a list of the outputs: a thread returns nothing, "
        "so let each put its output into a list that all see"
    )
    assert record["answers"] == list(range(number)), (
        f"the outputs are those of {plural('replica', record['answers'])}, in this order: "
        "that is who was ready first; put the output of replica i in place i"
    )
    (error,) = job.result.records("apply error")
    assert error["raised"], (
        "replica 1 raised a ValueError, and parallel_apply went on as if nothing had happened: "
        "an error ends its thread only, so keep it and raise it after join"
    )


@needs("runs")
def test_gather(job: Job) -> None:
    """TODO 4: all outputs together, in order, with a way back for gradients"""
    (record,) = job.result.records("gather")
    assert "error" not in record, raised("gather", record)
    assert record["typed"], "gather returned something else than a tensor"
    rows, wanted = record["rows"], record["wanted"]
    sizes = [wanted.count(one) for one in sorted(set(wanted))]
    missing = sorted(set(wanted) - set(rows))
    assert not missing, (
        f"of three replicas with {listed(sizes)} outputs "
        f"the gathered tensor lacks those of {plural('replica', missing)}"
    )
    assert rows == wanted, (
        f"gathered from three replicas with {listed(sizes)} outputs, the rows are of replicas {listed(rows)}: "
        "keep the order of the replicas"
    )
    assert record["shape"] == [len(wanted), 2], (
        f"outputs of {listed(sizes)} rows and 2 columns became a tensor of shape {tuple(record['shape'])}: "
        "join them along the first dimension"
    )
    assert all(record["reached"]), (
        f"no gradient came back to replica {record['reached'].index(False)}: "
        "gather must not detach the outputs or copy their numbers"
    )
    assert record["place"] == "meta", (
        f"asked for the device meta, gather left its result on {record['place']}: move the outputs to the device"
    )


@needs("runs")
def test_gradients(job: Job) -> None:
    """TODO 5: the model has the sum of all gradients"""
    (record,) = job.result.records("gradients")
    assert "error" not in record, raised("add_gradients", record)
    once, twice = record["values"]
    right, right_twice = record["wanted"]
    have = "three replicas have gradients of 1, 10 and 100"
    assert once, f"{have}, and the model got none: the optimizer would find nothing to do"
    said = f"{have}, and the model got {listed([f'{one:g}' for one in once])}"
    assert once != [right / 3], f"{said}, the mean: the loss was a mean over the whole batch already, so add up"
    assert once != [100.0], f"{said}, those of the last replica alone: add each to what is there"
    assert once != [1.0], f"{said}, those of the first replica alone: add those of all"
    assert once == [right], f"{said}, but their sum is {right:g}"
    assert twice == [right_twice], (
        f"{said}; a second time it has {listed([f'{one:g}' for one in twice])}, "
        f"not {right_twice:g}: add to what is there, as backward does, and leave the replicas' own as they are"
    )
    assert not record["frozen"], "a weight that is frozen got a gradient: where a replica has None, add nothing"


@needs("runs")
def test_saves(job: Job) -> None:
    """TODO 6: what is saved has the names of a plain model"""
    (record,) = job.result.records("saves")
    assert "error" not in record, raised("state_to_save", record)
    keys, wanted = record["keys"], record["wanted"]
    assert keys is not None, "state_to_save returned something else than a dict of weights"
    assert keys != [f"module.{name}" for name in wanted], (
        f"a checkpoint would hold {keys[0]}: every name begins with module., and a plain model cannot load it; "
        "take the state_dict of the model inside the wrapper"
    )
    lacks = [name for name in wanted if name not in keys]
    assert not lacks, f"a checkpoint would lack {lacks[0]}, which a plain model wants"
    assert record["same"], "a checkpoint would hold other names or numbers than the model has"


@needs("runs")
def test_loads(job: Job) -> None:
    """TODO 7: a plain model loads weights from with and without the wrapper"""
    for record in job.result.records("loads"):
        case = record["case"]
        assert "error" not in record, (
            f"weights {case} do not load: {raised('load', record)}; "
            "take one module. from the front of each name when all names have it"
        )
        assert record["same"], (
            f"weights {case} were taken without an error, and the model still has others: "
            "names that do not fit must not be passed over (strict=False)"
        )


@needs("scatter", "replicate", "apply", "gather", "gradients")
def test_trains(job: Job) -> None:
    """all steps together train as one device does"""
    (record,) = job.result.records("trains")
    assert "error" not in record, raised("train_step", record)
    apart, steps = record["apart"], record["steps"]
    by = "without limit" if apart is None else f"by up to {apart:.2g}"
    assert apart is not None and apart <= CLOSE, (
        f"after {steps} steps the weights differ {by} from those of one device with the same batches: "
        "train_step needs no change; look at what your functions leave behind between steps"
    )
    for step, (loss, right) in enumerate(zip(record["losses"], record["wanted"], strict=True), 1):
        assert loss is not None and math.isclose(loss, right, abs_tol=CLOSE), (
            f"in step {step} train_step returned {loss}, but the loss of the whole batch is {right:.4f}"
        )
