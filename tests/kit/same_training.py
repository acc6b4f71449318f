"""Two trainings that must have come to the same, number by number."""

from pathlib import Path

import numpy as np
import pytest
from distlab import checkpoint


def assert_same_state(mine: Path, twin: Path) -> None:
    """Two checkpoints hold the same model, and an Adam that has seen the same gradients.

    Adam's steps hardly tell by what its gradients were multiplied, its averages of them do.
    """
    mine, twin = checkpoint.read(mine), checkpoint.read(twin)
    assert set(mine["model"]) == set(twin["model"])
    for name, value in twin["model"].items():
        np.testing.assert_allclose(mine["model"][name], value, rtol=0, atol=1e-5, err_msg=name)
    assert (mine["epoch"], mine["steps"], mine["samples"]) == (twin["epoch"], twin["steps"], twin["samples"])
    mine, twin = mine["optimizer"], twin["optimizer"]
    assert mine["param_groups"] == twin["param_groups"]
    assert set(mine["state"]) == set(twin["state"]) == set(twin["param_groups"][0]["params"])
    for place, entry in twin["state"].items():
        own = mine["state"][place]
        assert set(own) == set(entry) == {"step", "exp_avg", "exp_avg_sq"}
        for name, value in entry.items():
            allowed = 1e-4 * value.abs().max().item()
            np.testing.assert_allclose(own[name], value, rtol=0, atol=allowed, err_msg=f"{name} of {place}")


def assert_same_records(mine: list[dict], twin: list[dict]) -> None:
    """Epochs have the same losses, accuracies and rates."""
    assert len(mine) == len(twin)
    for one, other in zip(mine, twin, strict=True):
        for name in ("epoch", "loss", "accuracy", "val_loss", "val_accuracy", "val_images", "lr"):
            assert one[name] == pytest.approx(other[name], abs=1e-5), name
