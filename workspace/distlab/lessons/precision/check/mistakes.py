"""Mistakes that people make in the exercise amp, and what its check says of each."""

from distlab.checks.mistake import Mistake

TO_MODEL = "model.to(device, memory_format=torch.channels_last)"
TO_IMAGES = "x, y = x.to(device, memory_format=torch.channels_last), y.to(device)"
FORWARD = (
    "            with torch.autocast(device.type, dtype):\n"
    "                loss = cross_entropy(model(x), y)\n"
    "            optimizer.zero_grad()\n"
)
BACKWARD = "            scaler.scale(loss).backward()\n"
UNSCALE = "            scaler.unscale_(optimizer)\n"
CLIP = "            clip_grad_norm_(model.parameters(), max_norm)\n"
STEP = "            scaler.step(optimizer)\n"
UPDATE = "            scaler.update()\n"
KEEP = ', "scaler": scaler.state_dict()}'
LOAD = '        scaler.load_state_dict(state["scaler"])\n'
WITHOUT_SCALER = [
    ("scaler.scale(loss).backward()", "loss.backward()"),
    (UNSCALE, ""),
    ("scaler.step(optimizer)", "optimizer.step()"),
    (UPDATE, ""),
]

MISTAKES = (
    Mistake(
        "clip before unscale",
        [(UNSCALE + CLIP, CLIP + UNSCALE)],
        "clips",
        "in step 1 the optimizer got gradients with a norm of 1.5e-06, not 0.1, 65,536 times too small: "
        "first scaler.unscale_(optimizer), then clip",
        live=True,
    ),
    Mistake(
        "never unscaled",
        [(UNSCALE, "")],
        "clips",
        "a norm of 1.5e-06, not 0.1, 65,536 times too small: first scaler.unscale_(optimizer), then clip",
    ),
    Mistake(
        "step without update",
        [(UPDATE, "")],
        "runs",
        "mine.py, line {line}*RuntimeError: unscale_() is being called after step(); scaler.update() ends each step",
        at="scaler.unscale_",
        live=True,
    ),
    Mistake(
        "step without unscale and update",
        [(UPDATE, ""), (UNSCALE, "")],
        "runs",
        "RuntimeError: step() has already been called since the last update(); scaler.update() ends each step",
    ),
    Mistake(
        "scale held",
        [("scaler.update()", "scaler.update(65536.0)")],
        "skips",
        "in step 3 a gradient overflowed, and the scale is still 65,536 after it: scaler.update() ends each step",
    ),
    Mistake(
        "autocast around backward",
        [(FORWARD + BACKWARD, FORWARD.replace("            opt", "                opt") + "    " + BACKWARD)],
        "autocast",
        "in step 1 autocast was still on while backward ran: end its with block after the loss",
    ),
    Mistake(
        "no autocast",
        [("            with torch.autocast(device.type, dtype):\n    ", "")],
        "autocast",
        "in step 1 the first convolution computed in float32, but dtype is float16: put model and loss under",
        live=True,
    ),
    Mistake(
        "autocast for cuda",
        [("torch.autocast(device.type, dtype)", 'torch.autocast("cuda", dtype)')],
        "autocast",
        "computed in float32, but dtype is float16: autocast is on for cuda, and this device is cpu",
    ),
    Mistake(
        "autocast without dtype",
        [("torch.autocast(device.type, dtype)", "torch.autocast(device.type)")],
        "autocast",
        "in step 1 the first convolution computed in bfloat16, but dtype is float16: give dtype to torch.autocast",
    ),
    Mistake(
        "autocast with a dtype of its own",
        [("torch.autocast(device.type, dtype)", "torch.autocast(device.type, torch.float16)")],
        "autocast",
        "in step 1 in bfloat16 the first convolution computed in float16, but dtype is bfloat16",
    ),
    Mistake(
        "model.half()",
        [(f"{TO_MODEL}\n", f"{TO_MODEL}.to(dtype)\n")],
        "runs",
        "ValueError: Attempting to unscale FP16 gradients; leave the model in float32, autocast computes with a copy",
    ),
    Mistake(
        "model.half() without a scaler",
        [(f"{TO_MODEL}\n", f"{TO_MODEL}.to(dtype)\n"), *WITHOUT_SCALER],
        "autocast",
        "in step 1 the weights are float16, in which small updates are lost: leave the model in float32",
    ),
    Mistake(
        "weights not channels_last",
        [(TO_MODEL, "model.to(device)")],
        "weights",
        "in step 1 a weight of shape (8, 8, 3, 3) has strides (72, 9, 3, 1), channels_last has (72, 1, 24, 8)",
        live=True,
    ),
    Mistake(
        "weights lose channels_last on the way",
        [(LOAD, f"{LOAD}        model.to(memory_format=torch.contiguous_format)\n")],
        "weights",
        "in step 1 after resuming a weight of shape (8, 8, 3, 3) has strides (72, 9, 3, 1)",
    ),
    Mistake(
        "images not channels_last",
        [(TO_IMAGES, "x, y = x.to(device), y.to(device)")],
        "images",
        "in step 1 a batch of shape (8, 3, 8, 8) has strides (192, 64, 8, 1), channels_last has (192, 1, 24, 3): x = ",
        live=True,
    ),
    Mistake(
        "images permuted",
        [(TO_IMAGES, "x, y = x.permute(0, 2, 3, 1), y.to(device)")],
        "runs",
        "to have 3 channels, but got 8 channels instead; channels_last is about strides, the shape stays (N, C, H, W)",
    ),
    Mistake(
        "float16 without a scaler",
        WITHOUT_SCALER,
        "scales",
        "in step 1 26% of all gradients became 0, which in float32 they are not: "
        "they are too small for float16, scale the loss with torch.amp.GradScaler",
        live=True,
    ),
    Mistake(
        "scaler never enabled",
        [("enabled=dtype == torch.float16", "enabled=False")],
        "scales",
        "% of all gradients became 0, which in float32 they are not: the GradScaler is off, and float16 needs it",
    ),
    Mistake(
        "scaler for cuda",
        [("GradScaler(device.type, ", "GradScaler(")],
        "scales",
        "% of all gradients became 0, *: the GradScaler is for cuda and stays off on cpu, make it for device.type",
    ),
    Mistake(
        "scale too small",
        [("GradScaler(device.type, ", "GradScaler(device.type, 2.0, ")],
        "scales",
        "% of all gradients became 0, *: the loss was multiplied by 2 only",
    ),
    Mistake(
        "loss not scaled",
        [("scaler.scale(loss).backward()", "loss.backward()")],
        "runs",
        "your script did not use scaler.scale(loss or outputs) earlier in the iteration",
    ),
    Mistake(
        "optimizer.step instead of scaler.step",
        [("scaler.step(optimizer)", "optimizer.step()")],
        "skips",
        "in step 3 a gradient overflowed and the optimizer took it, so 853 of 853 weights are no longer finite: "
        "scaler.step(optimizer) leaves it out",
        live=True,
        may_be_open=("loss",),
    ),
    Mistake(
        "no step", [(STEP, "")], "skips", "in step 1 all gradients were finite, but the optimizer was stepped 0 times"
    ),
    Mistake(
        "two steps",
        [(STEP, f"{STEP}            optimizer.step()\n")],
        "skips",
        "in step 1 all gradients were finite, but the optimizer was stepped 2 times",
        may_be_open=("loss",),
    ),
    Mistake(
        "not clipped",
        [(CLIP, "")],
        "clips",
        "in step 1 the optimizer got gradients with a norm of *, not 0.1: clip them to max_norm",
    ),
    Mistake(
        "zero_grad missing",
        [("            optimizer.zero_grad()\n", "")],
        "clips",
        "when backward began in step 2, the gradients of the step before were still there",
    ),
    Mistake(
        "scaler neither saved nor loaded",
        [(KEEP, "}"), (LOAD, "")],
        "resumes",
        "the scale was 32,768 when the first training ended, and 65,536 after resuming: "
        "save scaler.state_dict() as well, and load it",
        live=True,
    ),
    Mistake(
        "scaler not saved",
        [(KEEP, "}")],
        "runs",
        "KeyError: 'scaler'; the checkpoint has no such key, so save scaler.state_dict() as well",
    ),
    Mistake(
        "scaler not loaded",
        [(LOAD, "")],
        "resumes",
        "and 65,536 after resuming, though the checkpoint has the right one: call scaler.load_state_dict",
    ),
    Mistake(
        "scaler saved too early",
        [("    loader = ", "    early = scaler.state_dict()\n    loader = "), (KEEP, ', "scaler": early}')],
        "resumes",
        "and 65,536 after resuming, as in the checkpoint: ask for scaler.state_dict() after the last step",
    ),
    Mistake(
        "model not loaded",
        [('        model.load_state_dict(state["model"])\n', "")],
        "resumes",
        "after resuming, the weights are not those of the end of the first training",
    ),
    Mistake(
        "nothing saved", [("    torch.save(state, checkpoint)\n", "")], "resumes", "nobody wrote the file checkpoint"
    ),
    Mistake(
        "optimizer not loaded",
        [('        optimizer.load_state_dict(state["optimizer"])\n', "")],
        "learns",
        "the weights end *% away from where float32 takes them, as a part of the whole way",
        live=True,
    ),
    Mistake(
        "learning rate doubled",
        [("lr=lr", "lr=2 * lr")],
        "learns",
        "the weights end *% away from where float32 takes them",
    ),
    Mistake(
        "scaled loss returned",
        [("total + loss.item()", "total + scaler.scale(loss).item()")],
        "loss",
        "train returned *, but the mean loss of a sample in the last epoch is *: add up the loss before it is scaled",
        live=True,
    ),
    Mistake(
        "loss of a batch returned",
        [("loss.item() * len(x)", "loss.item()")],
        "loss",
        "train returned *, but the mean loss of a sample in the last epoch is *: weight each batch by its samples",
    ),
)
