"""Horovod's timeline and tensor fusion on two hosts: what travels, with whom, and after whom."""

import json
from pathlib import Path

import distlab
import needs
import pytest
from distlab.lessons.horovod import trace as horovod_trace
from distlab.lessons.horovod.pictures import fusion
from distlab.lessons.horovod.pictures import timeline as horovod_timeline
from distlab.lessons.horovod.pictures import ways as horovod_ways

pytestmark = pytest.mark.timeout(240)

PACKAGE = Path(distlab.__file__).parent
FUSION, TRAIN = PACKAGE / "lessons/horovod/experiments/fusion.py", PACKAGE / "scripts" / "horovod_ddp.py"
PARAMETERS = {f"{layer}.{kind}" for layer in (0, 3, 8) for kind in ("weight", "bias")}
RANKS = {0, 1, 2, 3}
PATIENCE = 120


@pytest.fixture(scope="session", autouse=True)
def horovod() -> None:
    """Before any host starts."""
    needs.horovod()


@pytest.mark.parametrize("launcher", ["horovodrun", "horovodrun-mpi"])
def test_each_tensor_travels_once_in_each_step_after_all_ranks_were_ready(warm, tmp_path, launcher):
    file = tmp_path / "timeline.json"
    env = {"HOROVOD_TIMELINE": file, "HOROVOD_CACHE_CAPACITY": 0}
    more = {"launcher": launcher, "timeout": PATIENCE, "env": env, "quiet": True}
    done = warm(TRAIN, data="digits", limit=512, epochs=2, **more)
    trips = horovod_trace.trips(horovod_trace.read(file))
    steps = horovod_trace.steps(trips)
    assert len(steps) == done.last("end")[0]["steps"]
    way = "MPI_ALLREDUCE" if launcher == "horovodrun-mpi" else "GLOO_ALLREDUCE"
    assert {event["name"] for event in json.loads(file.read_text()) if event.get("name") in horovod_trace.REDUCES} == {
        way
    }
    for step in steps:
        assert len(step) == len(PARAMETERS) and {trip.tensor for trip in step} == PARAMETERS
        assert all(trip.ready.keys() == RANKS and trip.waits for trip in step)
        assert all(trip.copy_in for group in horovod_trace.groups(step) if len(group) > 1 for trip in group)
        assert all(trip.copy_in is None for group in horovod_trace.groups(step) if len(group) == 1 for trip in group)
    # In a step nothing travels before all of the last one has arrived.
    for step, following in zip(steps, steps[1:], strict=False):
        assert max(trip.reduce[1] for trip in step) <= min(trip.reduce[0] for trip in following)
    assert sum(trip.size for trip in steps[0]) == 4 * done.last("setup")[0]["parameters"]
    assert horovod_timeline.picture(horovod_trace.quickest(steps)).alt
    assert horovod_ways.totals({"Horovod": done.records("end")})["Horovod"] > 0


MORE = {"launcher": "horovodrun", "timeout": PATIENCE, "tensors": 16, "steps": 3, "quiet": True}


def test_without_fusion_each_tensor_goes_alone_and_by_default_some_go_together(warm):
    alone = warm(FUSION, threshold=0, **MORE).records("fusion")
    together = warm(FUSION, **MORE).records("fusion")
    (unfused,), (other,) = alone, together
    assert unfused["reduces_each"] == [16] * 3 and unfused["reduces"] == unfused["tensors"] == 16
    assert other["reduces"] < 16 and len(other["reduces_each"]) == len(other["milliseconds_each"]) == 3
    assert (unfused["threshold_bytes"], other["threshold_bytes"], unfused["cycle_ms"]) == (0, 128 << 20, 1.0)
    assert unfused["bytes"] == 4 * 8 * (64 * 64 + 64) and min(unfused["milliseconds_each"]) > 0
    assert fusion.picture([*alone, *together]).alt


def test_a_small_threshold_keeps_what_travels_together_small(warm):
    # A weight and a bias are 16,640 bytes: two tensors fit, and a third does not.
    (record,) = warm(FUSION, threshold=16_640, cycle_ms=5, **MORE).records("fusion")
    assert record["cycle_ms"] == 5.0
    assert all(8 <= reduces <= 16 for reduces in record["reduces_each"])
