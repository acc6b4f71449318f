"""What makes the exercise amp right, in the order in which one would mend it."""

import math
from collections.abc import Iterator

from distlab.checks.engine import Observed, Open, Requirements

# The calls of train, and how a sentence says in which one something was seen.
CALLS = {"first": "", "resumed": " after resuming", "bfloat16": " in bfloat16"}
# Rounding: gradients were seen within 0.005 of those of float32; what a mistake does is far more than 0.1.
CLOSE = 0.1
# Share of gradients that may be 0 though they are not in float32.
FEW = 0.05

HINTS = {
    "step() has already been called since the last update()": "scaler.update() ends each step",
    "unscale_() is being called after step()": "scaler.update() ends each step",
    "unscale_() has already been called on this optimizer": "unscale once, and scaler.update() ends each step",
    "Attempting to unscale FP16 gradients": "leave the model in float32, autocast computes with a copy",
    "KeyError: 'scaler'": "the checkpoint has no such key, so save scaler.state_dict() as well",
    "to have 3 channels, but got": "channels_last is about strides, the shape stays (N, C, H, W)",
}
REQUIREMENTS = Requirements(HINTS)


def steps_of(trained: dict, *names: str) -> Iterator[tuple[str, dict, dict]]:
    """Where, the call and the step, for every step of some calls: `step 3 after resuming`."""
    for name in names or CALLS:
        for number, step in enumerate(trained[name]["steps"], 1):
            yield f"step {number}{CALLS[name]}", trained[name], step


def near(value: float | None, other: float | None, within: float = CLOSE) -> bool:
    """Equal but for rounding; what is not finite is near nothing."""
    return value is not None and other is not None and math.isclose(value, other, rel_tol=within)


def figure(value: float | None) -> str:
    """A number as one reads it: `32,768`, `0.3`, `1.5e-06`; scales are powers of two, measured within a percent."""
    if value is None:
        return "no finite number"
    power = 2.0 ** round(math.log2(value)) if value > 1 else value
    value = power if near(value, power, 0.01) else value
    return f"{value:,.0f}" if value >= 100 else f"{value:.2g}"


def percent(share: float) -> str:
    """`41%`, for a share of 0.41."""
    return f"{100 * share:.0f}%"


def layout_fault(where: str, what: str, tensor: dict, mend: str) -> str | None:
    """A tensor that is not channels_last."""
    shape, strides, right = (tuple(tensor[key]) for key in ("shape", "strides", "channels_last"))
    if strides != right:
        return f"in {where} {what} of shape {shape} has strides {strides}, channels_last has {right}: {mend}"
    return None


@REQUIREMENTS.add()
def runs(observed: Observed) -> str | None:
    """the file runs to its end"""
    if observed.trouble is not None:
        return observed.trouble
    for name, said in CALLS.items():
        if not observed.first("trained")[name]["steps"]:
            return f"the model was never called{said}, so it was not trained"
    return None


@REQUIREMENTS.add(needs=("runs",))
def weights(observed: Observed) -> str | None:
    """TODO 1: weights are channels_last"""
    trained = observed.first("trained")
    for where, _, step in steps_of(trained):
        mend = "model.to(device, memory_format=torch.channels_last)"
        if fault := layout_fault(where, "a weight", step["weight"], mend):
            return fault
    return None


@REQUIREMENTS.add(needs=("runs",))
def images(observed: Observed) -> str | None:
    """TODO 2: images are channels_last"""
    trained = observed.first("trained")
    for where, _, step in steps_of(trained):
        mend = "x = x.to(device, memory_format=torch.channels_last)"
        if fault := layout_fault(where, "a batch", step["input"], mend):
            return fault
    return None


@REQUIREMENTS.add(needs=("runs",))
def autocast(observed: Observed) -> str | None:
    """TODO 3: the forward pass computes in dtype, from weights in float32"""
    trained = observed.first("trained")
    others = [kind for kind in trained["autocast"] if kind != trained["device"]]
    for where, call, step in steps_of(trained):
        if step["weight_dtype"] != "float32":
            return (
                f"in {where} the weights are {step['weight_dtype']}, in which small updates are lost: "
                "leave the model in float32, autocast computes with a copy"
            )
        if step["computed_in"] == call["dtype"]:
            continue
        said = f"in {where} the first convolution computed in {step['computed_in']}, but dtype is {call['dtype']}"
        if step["computed_in"] != "float32":
            return f"{said}: give dtype to torch.autocast"
        if others and trained["device"] not in trained["autocast"]:
            return f"{said}: autocast is on for {others[0]}, and this device is {trained['device']}"
        return f"{said}: put model and loss under torch.autocast(device.type, dtype)"
    for where, _, step in steps_of(trained):
        if step["autocast_in_backward"]:
            return f"in {where} autocast was still on while backward ran: end its with block after the loss"
    return None


@REQUIREMENTS.add(needs=("autocast",))
def scales(observed: Observed) -> str | None:
    """TODO 4: in float16 the loss is scaled, so that small gradients do not become 0"""
    trained = observed.first("trained")
    for where, call, step in steps_of(trained, "first", "resumed"):
        if step["vanished"] is None:
            return f"{where} did not go backward from the loss"
        if step["vanished"] <= FEW:
            continue
        lost = f"in {where} {percent(step['vanished'])} of all gradients became 0, which in float32 they are not"
        for kind, enabled in call["scalers"]:
            if not enabled and kind != trained["device"]:
                return (
                    f"{lost}: the GradScaler is for {kind} and stays off on {trained['device']}, "
                    "make it for device.type"
                )
            if not enabled:
                return f"{lost}: the GradScaler is off, and float16 needs it"
        if not near(step["scale"], 1):
            return f"{lost}: the loss was multiplied by {figure(step['scale'])} only"
        return f"{lost}: they are too small for float16, scale the loss with torch.amp.GradScaler"
    return None


@REQUIREMENTS.add(needs=("scales",))
def clips(observed: Observed) -> str | None:
    """TODO 5: gradients are unscaled, and then clipped"""
    trained = observed.first("trained")
    for where, call, step in steps_of(trained):
        if step["stale"]:
            return (
                f"when backward began in {where}, the gradients of the step before were still there: "
                "call optimizer.zero_grad() in every step"
            )
        # Steps that should not have been taken are another matter.
        if not step["taken"] or step["overflowed"] or step["norm_float32"] is None or near_enough(step):
            continue
        most, norm, true, scale = call["max_norm"], step["norm"], step["norm_float32"], step["scale"]
        aim = min(most, true)
        said = f"in {where} the optimizer got gradients with a norm of {figure(norm)}, not {figure(aim)}"
        if scale > 1 + CLOSE and near(norm * scale, most):
            return f"{said}, {figure(scale)} times too small: first scaler.unscale_(optimizer), then clip"
        if scale > 1 + CLOSE and (near(norm, true * scale) or (near(norm, most) and true < most)):
            return f"{said}: they were still multiplied by the scale, {figure(scale)}, so unscale them first"
        if near(norm, true):
            return f"{said}: clip them to max_norm"
        return f"{said}, and {percent(step['off'])} away from those of float32: unscale once, then clip once"
    return None


def near_enough(step: dict) -> bool:
    """The optimizer got the gradients of float32, clipped."""
    return step["off"] is not None and step["off"] < CLOSE


@REQUIREMENTS.add(needs=("scales",))
def skips(observed: Observed) -> str | None:
    """TODO 6: a step whose gradients overflowed is left out, and the scale follows"""
    trained = observed.first("trained")
    for where, _, step in steps_of(trained):
        lost, parameters = step["not_finite_after"], step["parameters"]
        if step["overflowed"]:
            if step["taken"]:
                return (
                    f"in {where} a gradient overflowed and the optimizer took it, "
                    f"so {lost:,} of {parameters:,} weights are no longer finite: scaler.step(optimizer) leaves it out"
                    if lost
                    else f"in {where} a gradient overflowed and the optimizer was stepped: scaler.step leaves it out"
                )
            continue
        if step["taken"] != 1:
            return (
                f"in {where} all gradients were finite, but the optimizer was stepped {step['taken']} times: "
                "call scaler.step(optimizer), once"
            )
    pairs = list(steps_of(trained, "first"))
    for (where, _, step), (_, _, after) in zip(pairs, pairs[1:], strict=False):
        # A scale so large that the very first gradient overflows cannot be measured.
        if not (step["overflowed"] and step["scale"] and after["scale"]):
            continue
        if after["scale"] >= step["scale"] * (1 - CLOSE):
            return (
                f"in {where} a gradient overflowed, and the scale is still {figure(after['scale'])} after it: "
                "scaler.update() ends each step"
            )
    return None


@REQUIREMENTS.add(needs=("clips", "skips"))
def resumes(observed: Observed) -> str | None:
    """TODO 7: the checkpoint has all that a training needs to go on"""
    trained = observed.first("trained")
    saved = trained["first"]["checkpoint"]
    if not saved["file"]:
        return "nobody wrote the file checkpoint"
    if trained["resumed_off"] != 0:
        return "after resuming, the weights are not those of the end of the first training"
    ended, began = trained["first"]["steps"][-1]["scale"], trained["resumed"]["steps"][0]["scale"]
    if near(ended, began):
        return None
    said = f"the scale was {figure(ended)} when the first training ended, and {figure(began)} after resuming"
    if saved["scale"] is None:
        return f"{said}: save scaler.state_dict() as well, and load it"
    if not near(saved["scale"], ended):
        return f"{said}, as in the checkpoint: ask for scaler.state_dict() after the last step"
    return f"{said}, though the checkpoint has the right one: call scaler.load_state_dict"


@REQUIREMENTS.add(needs=("resumes",))
def learns(observed: Observed) -> str | None:
    """the weights end where float32 would have taken them"""
    trained = observed.first("trained")
    off = trained["ends_off"]
    if off is None or off >= CLOSE:
        return (
            f"the weights end {'without limit' if off is None else percent(off)} away from where float32 takes them, "
            "as a part of the whole way: use lr and momentum as they are, and resume the optimizer too"
        )
    return None


@REQUIREMENTS.add(needs=("runs",))
def loss(observed: Observed) -> str | None:
    """train returns the mean loss of the last epoch"""
    trained = observed.first("trained")
    for name, said in CALLS.items():
        call = trained[name]
        last = len(call["losses"]) - len(call["losses"]) // call["epochs"]
        losses, samples = call["losses"][last:], call["samples"][last:]
        if None in losses:
            raise Open("the loss itself is not finite")
        mean = sum(loss * count for loss, count in zip(losses, samples, strict=True)) / sum(samples)
        returned, scale = call["returned"], call["steps"][-1]["scale"]
        if near(returned, mean, 0.01):
            continue
        value = call["returned_type"] if returned is None else f"{returned:,.3f}"
        wrong = f"train returned {value}{said}, but the mean loss of a sample in the last epoch is {mean:.3f}"
        # The scale may have changed on the way.
        if returned is not None and scale and scale > 2 and scale / 2 < returned / mean < scale * 3:
            return f"{wrong}: add up the loss before it is scaled"
        return f"{wrong}: weight each batch by its samples"
    return None
